#include "runtime/nn/gpt.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "runtime/autograd/autocast.hpp"
#include "runtime/autograd/checkpoint.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith {

CausalSelfAttention::CausalSelfAttention(std::int64_t dim, int heads)
    : qkv(dim, 3 * dim), out(dim, dim), heads_(heads) {
  require(heads >= 1 && dim % heads == 0, "attention: a width of " + std::to_string(dim) +
                                              " cannot be split into " + std::to_string(heads) +
                                              " heads; make the width a multiple of the heads");
  register_module("qkv", qkv);
  register_module("out", out);
}

Block::Block(const GPTOptions& o)
    : norm1(o.dim),
      attention(o.dim, o.heads),
      norm2(o.dim),
      up(o.dim, 4 * o.dim),
      down(4 * o.dim, o.dim),
      drop_(o.dropout) {
  register_module("norm1", norm1);
  register_module("attention", attention);
  register_module("norm2", norm2);
  register_module("up", up);
  register_module("down", down);
  register_module("drop", drop_);
}

Tensor Block::forward(const Tensor& x) {
  const auto [y, normed] = norm2.add(x, drop_(attention(norm1.lowered(x))));
  if (up.is_wrapped() || down.is_wrapped()) return y + drop_(down(gelu(up(normed), Gelu::tanh)));
  return y + drop_(feed_forward(normed, up.weight, up.bias, down.weight, down.bias));
}

namespace {

// Appends zero rows to a parameter.
Tensor with_rows(const Tensor& weight, std::int64_t rows) {
  if (weight.size(0) == rows) return weight;
  const Tensor padded = zeros({rows, weight.size(1)});
  padded.slice(0, 0, weight.size(0)).copy_(weight.detach());
  return padded.requires_grad_();
}

}  // namespace

// Members draw their initial values in the order of construction: tok, pos, blocks, head.
GPT::GPT(const GPTOptions& options)
    : tok(options.vocabulary, options.dim),
      pos(options.context, options.dim),
      norm(options.dim),
      options_(options),
      drop_(options.dropout) {
  require(options.layers >= 1,
          "GPT: needs at least one layer, got " + std::to_string(options.layers));
  register_module("tok", tok);
  register_module("pos", pos);
  for (int i = 0; i < options.layers; ++i) {
    blocks.push_back(std::make_unique<Block>(options));
    register_module("blocks." + std::to_string(i), *blocks.back());
  }
  register_module("norm", norm);
  head = std::make_unique<Linear>(options.dim, options.vocabulary, /*with_bias=*/false);
  register_module("head", *head);
  register_module("drop", drop_);
  if (options.gpt2_init) initialise_as_gpt2();
  const std::int64_t multiple = options.vocabulary_multiple;
  require(multiple >= 1,
          "GPT: vocabulary_multiple must be at least 1, got " + std::to_string(multiple));
  const std::int64_t rows = (options.vocabulary + multiple - 1) / multiple * multiple;
  if (options.tied) tok.weight = with_rows(tok.weight, rows);
  head->weight = options.tied ? tok.weight : with_rows(head->weight, rows);
}

Tensor GPT::forward(const Tensor& tokens) {
  require(tokens.dim() == 2, "GPT: tokens must be (batch, time), got " + to_string(tokens.sizes()));
  const std::int64_t t = tokens.size(1);
  require(t <= options_.context, "GPT: " + std::to_string(t) + " tokens exceed the context of " +
                                     std::to_string(options_.context));
  autocast::lower_all(matrices());
  Tensor x = drop_(tok(tokens) + slice(pos.weight, 0, 0, t));
  for (const auto& block : blocks) {
    const auto run = std::ref<Module>(*block);
    if (!options_.activation_checkpointing)
      x = run(x);
    else
      x = options_.dropout > 0 ? checkpoint(run, x) : checkpoint<Draws::no>(run, x);
  }
  const Tensor logits = (*head)(norm.lowered(x));
  return logits.size(2) == options_.vocabulary ? logits : slice(logits, 2, 0, options_.vocabulary);
}

std::vector<Tensor> GPT::matrices() const {
  std::vector<Tensor> all;
  const auto add = [&](const Linear& layer) {
    all.push_back(layer.weight);
    if (layer.bias.defined()) all.push_back(layer.bias);
  };
  for (const auto& block : blocks) {
    add(block->attention.qkv);
    add(block->attention.out);
    add(block->up);
    add(block->down);
  }
  add(*head);
  return all;
}

void GPT::initialise_as_gpt2() {
  constexpr double kStddev = 0.02;
  const double residual = kStddev / std::sqrt(2.0 * options_.layers);
  const auto normal = [](const Tensor& weight, double stddev) {
    fill_normal(weight.span<float>(), 0, stddev, default_generator());
  };
  const auto dense = [&](const Linear& layer, double stddev) {
    normal(layer.weight, stddev);
    if (layer.bias.defined()) layer.bias.zero_();
  };
  normal(tok.weight, kStddev);
  normal(pos.weight, kStddev);
  for (const auto& block : blocks) {
    dense(block->attention.qkv, kStddev);
    dense(block->attention.out, residual);
    dense(block->up, kStddev);
    dense(block->down, residual);
  }
  dense(*head, kStddev);
}

std::int64_t sample_token(const std::vector<float>& logits, double temperature, int top_k,
                          Generator& g) {
  require(!logits.empty(), "sample_token: no logits");
  for (const float logit : logits)
    if (std::isnan(logit))
      throw Error("generate: the model's output is NaN; look for NaN in its parameters");
  // Sorts the most likely tokens first. The sort is stable, so that a seed always gives the same
  // text.
  std::vector<std::int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto logit = [&](std::int64_t i) { return logits[static_cast<std::size_t>(i)]; };
  std::ranges::stable_sort(order, std::greater(), logit);
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
          "generate: tokens and top_k must not be negative, and context must be at least 1");
  require(std::isfinite(options.temperature) && options.temperature >= 0,
          "generate: temperature must be finite and not negative");
  const NoGradGuard no_grad;
  const EvalGuard eval(model);
  const Device device = model.device();
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    const std::int64_t t = std::min(options.context, std::ssize(prompt));
    const Tensor tokens = Tensor::empty({1, t}, {DType::i64});
    std::copy(prompt.end() - t, prompt.end(), tokens.data<std::int64_t>());
    const Tensor logits = model(tokens.to(device)).select(1, t - 1).to(DType::f32);
    prompt.push_back(
        sample_token(logits.to_vector<float>(), options.temperature, options.top_k, g));
  }
  return prompt;
}

}  // namespace ringsmith
