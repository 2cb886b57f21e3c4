#include "runtime/nn/generate.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "runtime/autograd/node.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith {

std::int64_t sample_token(const std::vector<float>& logits, double temperature, int top_k,
                          Generator& g) {
  require(!logits.empty(), "sample_token: no logits");
  for (const float logit : logits)
    if (std::isnan(logit)) throw Error("generate: the model's output is NaN");
  // Likeliest first; equal logits keep their order, so that a seed always gives the same text.
  std::vector<std::int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto logit = [&](std::int64_t i) { return logits[static_cast<std::size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return logit(a) > logit(b); });
  if (temperature == 0) return order.front();
  if (top_k > 0 && static_cast<std::size_t>(top_k) < order.size())
    order.resize(static_cast<std::size_t>(top_k));

  std::vector<double> cumulative;
  double total = 0;
  for (const std::int64_t i : order) {
    total += std::exp(static_cast<double>(logit(i) - logit(order.front())) / temperature);
    cumulative.push_back(total);
  }
  const double u = g.uniform_double() * total;
  const auto chosen = std::upper_bound(cumulative.begin(), cumulative.end() - 1, u);
  return order[static_cast<std::size_t>(chosen - cumulative.begin())];
}

std::vector<std::int64_t> generate(Module& model, std::vector<std::int64_t> prompt,
                                   const GenerateOptions& options, Generator& g) {
  require(!prompt.empty(), "generate: the prompt is empty; give at least one token");
  require(options.tokens >= 0 && options.context >= 1 && options.top_k >= 0,
          "generate: tokens, context and top_k must not be negative");
  require(std::isfinite(options.temperature) && options.temperature >= 0,
          "generate: temperature must be finite and not negative");
  const NoGradGuard no_grad;
  const EvalGuard eval(model);
  const Device device = model.device();
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    const std::int64_t t = std::min(options.context, std::ssize(prompt));
    const Tensor tokens = Tensor::empty({1, t}, {DType::i64});
    std::copy(prompt.end() - t, prompt.end(), tokens.data<std::int64_t>());
    const Tensor logits = model(tokens.to(device)).select(1, t - 1);
    prompt.push_back(
        sample_token(logits.to_vector<float>(), options.temperature, options.top_k, g));
  }
  return prompt;
}

}  // namespace ringsmith
