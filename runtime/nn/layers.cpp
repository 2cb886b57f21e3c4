#include "runtime/nn/layers.hpp"

#include <string>

#include "runtime/base/error.hpp"
#include "runtime/nn/init.hpp"

namespace ringsmith {
namespace {

void check_width(const char* layer, std::int64_t n) {
  require(n >= 1, std::string(layer) + ": sizes must be at least 1, got " + std::to_string(n));
}

}  // namespace

Linear::Linear(std::int64_t in, std::int64_t out, bool with_bias) {
  check_width("Linear", in);
  check_width("Linear", out);
  register_parameter("weight", weight, init::uniform({out, in}, init::weight_bound(in)));
  if (with_bias) register_parameter("bias", bias, init::uniform({out}, init::bias_bound(in)));
}

Embedding::Embedding(std::int64_t count, std::int64_t dim) {
  check_width("Embedding", count);
  check_width("Embedding", dim);
  register_parameter("weight", weight, init::normal({count, dim}, 1));
}

LayerNorm::LayerNorm(std::int64_t dim, double eps) : eps_(eps) {
  check_width("LayerNorm", dim);
  register_parameter("weight", weight, init::constant({dim}, 1));
  register_parameter("bias", bias, init::constant({dim}, 0));
}

Dropout::Dropout(double p) : p_(p) {
  require(p >= 0 && p < 1, "Dropout: p must be in [0, 1), got " + std::to_string(p));
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (const auto& module : modules_) y = module->forward(y);
  return y;
}

MLP::MLP(const std::vector<std::int64_t>& widths) {
  require(widths.size() >= 2, "MLP: needs at least the widths of its input and its output");
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    if (i > 0) add<ReLU>();
    add<Linear>(widths[i], widths[i + 1]);
  }
}

Tensor MLP::forward(const Tensor& x) {
  return Sequential::forward(x.dim() > 2 ? reshape(x, {x.size(0), -1}) : x);
}

}  // namespace ringsmith
