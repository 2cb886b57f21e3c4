#include "runtime/nn/conv.hpp"

#include <string>

#include "runtime/base/error.hpp"
#include "runtime/nn/init.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith {

Conv2d::Conv2d(std::int64_t in, std::int64_t out, Pair kernel, Conv2dOptions options)
    : options_(options) {
  require(in >= 1 && out >= 1 && kernel.h >= 1 && kernel.w >= 1,
          "Conv2d: channels and kernel must be at least 1");
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
  require(channels >= 1, "BatchNorm2d: needs at least 1 channel");
  register_parameter("weight", weight, init::constant({channels}, 1));
  register_parameter("bias", bias, init::constant({channels}, 0));
  register_buffer("running_mean", running_mean, init::constant({channels}, 0));
  register_buffer("running_var", running_var, init::constant({channels}, 1));
  const Tensor count = Tensor::empty({}, {DType::i64});
  count.zero_();
  register_buffer("num_batches_tracked", num_batches_tracked, count);
}

Tensor BatchNorm2d::forward(const Tensor& x) {
  if (training())  // through f64, exact to 2^53: integers have no arithmetic here
    num_batches_tracked.copy_(
        raw::scalar(raw::Scalar::add, num_batches_tracked.to(DType::f64), 1, "BatchNorm2d"));
  return batch_norm(x, weight, bias, running_mean, running_var, training(), momentum_, eps_);
}

MaxPool2d::MaxPool2d(Pair kernel, Pair stride, Pair padding)
    : kernel_(kernel), stride_(stride.h == 0 ? kernel : stride), padding_(padding) {}

}  // namespace ringsmith
