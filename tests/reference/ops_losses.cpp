#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/autograd/functions.hpp"
#include "tests/reference/ops.hpp"

namespace ringsmith::reference {

namespace {

Reduction reduction_of(const Call& c) {
  const auto name = c.attrs.at("reduction").get<std::string>();
  if (name == "mean") return Reduction::mean;
  if (name == "sum") return Reduction::sum;
  require(name == "none", "unknown reduction " + name);
  return Reduction::none;
}

std::int64_t ignored(const Call& c) { return c.attrs.value("ignore_index", std::int64_t{-100}); }

Tensor cross_entropy_of(const Call& c) {
  return cross_entropy(c.in("x"), c.in("target"), reduction_of(c), ignored(c),
                       c.attrs.value("label_smoothing", 0.0));
}

Tensor log_softmax_nll(const Call& c) {
  return nll_loss(log_softmax(c.in("x"), 1), c.in("target"), reduction_of(c), ignored(c));
}

Tensor masked_fill_softmax(const Call& c) {
  const auto kind = c.attrs.at("mask").get<std::string>();
  require(kind == "strictly upper triangle, -inf", "masked_fill_softmax: unknown mask " + kind);
  const Tensor& x = c.in("x");
  const Tensor mask = Tensor::empty(x.sizes(), {DType::boolean});
  const auto bits = mask.span<bool>();
  for (std::int64_t i = 0; i < x.size(0); ++i)
    for (std::int64_t j = 0; j < x.size(1); ++j)
      bits[static_cast<std::size_t>(i * x.size(1) + j)] = j > i;
  return softmax(masked_fill(x, mask.to(x.device()), -std::numeric_limits<double>::infinity()), -1);
}

}  // namespace

void add_losses(OpTable& table) {
  table["softmax"] = [](const Call& c) { return softmax(c.in("x"), c.attrs.at("dim").get<int>()); };
  table["log_softmax"] = [](const Call& c) {
    return log_softmax(c.in("x"), c.attrs.at("dim").get<int>());
  };
  table["masked_fill_softmax"] = masked_fill_softmax;
  table["log_softmax_nll"] = log_softmax_nll;
  table["cross_entropy"] = cross_entropy_of;
  table["mse_loss"] = [](const Call& c) { return mse_loss(c.in("x"), c.in("y"), reduction_of(c)); };
}

}  // namespace ringsmith::reference
