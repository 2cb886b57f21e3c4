#include "runtime/nn/layers.hpp"

#include <cmath>
#include <string>

#include "runtime/base/error.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith {

namespace {

// Initial values, with PyTorch's order of draws and bounds.
namespace init {

Tensor uniform(const Shape& shape, double bound) {
  Tensor t = Tensor::empty(shape);
  fill_uniform(t.span<float>(), -bound, bound, default_generator());
  return t;
}

Tensor normal(const Shape& shape, double stddev) {
  Tensor t = Tensor::empty(shape);
  fill_normal(t.span<float>(), 0, stddev, default_generator());
  return t;
}

// Bound of the weights of Linear and Conv2d: Kaiming uniform for a leaky ReLU of slope sqrt(5),
// i.e. 1 / sqrt(fan_in) up to rounding. The formula is evaluated in full, because the bound must
// round like PyTorch's, and in double sqrt(5) squared is not 5.
double weight_bound(std::int64_t fan_in) {
  const double slope = std::sqrt(5.0);
  const double gain = std::sqrt(2.0 / (1 + slope * slope));
  return std::sqrt(3.0) * (gain / std::sqrt(static_cast<double>(fan_in)));
}

// Bound of the biases of Linear and Conv2d.
double bias_bound(std::int64_t fan_in) { return 1 / std::sqrt(static_cast<double>(fan_in)); }

}  // namespace init

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
  register_parameter("weight", weight, ones({dim}));
  register_parameter("bias", bias, zeros({dim}));
}

Dropout::Dropout(double p) : p_(p) {
  require(p >= 0 && p < 1, "Dropout: p must be in [0, 1), got " + std::to_string(p));
}

// Passes the product instead of -1: for an empty batch, reshape could not compute the size.
Tensor Flatten::forward(const Tensor& x) {
  return reshape(x, {x.size(0), numel_of({x.sizes().begin() + 1, x.sizes().end()})});
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (const auto& module : modules_) y = (*module)(y);
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
  return Sequential::forward(x.dim() > 2 ? Flatten().forward(x) : x);
}

Conv2d::Conv2d(std::int64_t in, std::int64_t out, Pair kernel, Conv2dOptions options)
    : options_(options) {
  require(in >= 1 && out >= 1 && kernel.h >= 1 && kernel.w >= 1,
          "Conv2d: channels and kernel must be at least 1, got " + std::to_string(in) + " and " +
              std::to_string(out) + " channels and a kernel of " + std::to_string(kernel.h) +
              " x " + std::to_string(kernel.w));
  require(options.groups >= 1 && in % options.groups == 0 && out % options.groups == 0,
          "Conv2d: " + std::to_string(options.groups) + " groups do not divide " +
              std::to_string(in) + " and " + std::to_string(out) + " channels");
  const std::int64_t fan_in = in / options.groups * kernel.h * kernel.w;
  register_parameter(
      "weight", weight,
      init::uniform({out, in / options.groups, kernel.h, kernel.w}, init::weight_bound(fan_in)));
  if (options.bias)
    register_parameter("bias", bias, init::uniform({out}, init::bias_bound(fan_in)));
}

BatchNorm2d::BatchNorm2d(std::int64_t channels, double momentum, double eps)
    : momentum_(momentum), eps_(eps) {
  require(channels >= 1, "BatchNorm2d: needs at least 1 channel, got " + std::to_string(channels));
  register_parameter("weight", weight, ones({channels}));
  register_parameter("bias", bias, zeros({channels}));
  register_buffer("running_mean", running_mean, zeros({channels}));
  register_buffer("running_var", running_var, ones({channels}));
  register_buffer("num_batches_tracked", num_batches_tracked, zeros({}, {DType::i64}));
}

Tensor BatchNorm2d::forward(const Tensor& x) {
  if (training())  // through f64 (exact up to 2^53), because integer tensors have no arithmetic
    num_batches_tracked.copy_(
        raw::scalar(raw::Scalar::add, num_batches_tracked.to(DType::f64), 1, "BatchNorm2d"));
  return function_(x, weight, bias, running_mean, running_var, training(), momentum_, eps_);
}

MaxPool2d::MaxPool2d(Pair kernel, Pair stride, Pair padding)
    : kernel_(kernel), stride_(stride.h == 0 ? kernel : stride), padding_(padding) {}

SmallCNN::SmallCNN(std::int64_t channels, std::int64_t height, std::int64_t width,
                   std::int64_t classes) {
  require(height >= 6 && width >= 6, "SmallCNN: images must be at least 6 x 6 pixels, got " +
                                         std::to_string(height) + " x " + std::to_string(width));
  add<Conv2d>(channels, 32, Pair{3, 3});
  add<ReLU>();
  add<Conv2d>(32, 64, Pair{3, 3});
  add<ReLU>();
  add<MaxPool2d>(Pair{2, 2});
  add<Flatten>();
  add<Linear>(64 * ((height - 4) / 2) * ((width - 4) / 2), classes);
}

}  // namespace ringsmith
