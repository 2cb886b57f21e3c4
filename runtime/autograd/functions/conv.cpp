// Convolution and pooling.
//
// conv2d takes x (n, c, h, w), weight (out, c / groups, kh, kw), and bias (out) or an undefined
// tensor. Pooling treats the n * c planes of (n, c, h, w) separately.

#include "kernels/conv.hpp"

#include <limits>

#include "kernels/pool.hpp"
#include "runtime/autograd/autocast.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/functions/support.hpp"
#include "runtime/device/profiler.hpp"

namespace ringsmith {

using detail::input, detail::output, detail::wide;

namespace {

using kernels::Conv2dShape;
using kernels::Pool2dShape;

// Limit for strides, paddings, dilations and windows. The sum or product of any two must not
// overflow.
constexpr std::int64_t kMostPixels = std::numeric_limits<std::int32_t>::max();

constexpr const char* kAtMost = ", and at most 2^31 - 1";

bool between(std::int64_t least, Pair p, std::int64_t most = kMostPixels) {
  return p.h >= least && p.w >= least && p.h <= most && p.w <= most;
}

std::string text(Pair p) { return std::to_string(p.h) + "x" + std::to_string(p.w); }

Conv2dShape conv_shape(const Tensor& x, const Tensor& weight, const Tensor& bias, Pair stride,
                       Pair padding, Pair dilation, std::int64_t groups) {
  detail::require_dims("conv2d", "x", x, 4, "(n, channels, height, width)");
  detail::require_dims("conv2d", "weight", weight, 4, "(out, channels / groups, height, width)");
  const auto complain = [&](bool fine, const std::string& why) {
    if (!fine)
      throw UsageError("conv2d: " + why + " (x " + to_string(x.sizes()) + ", weight " +
                       to_string(weight.sizes()) + ", groups " + std::to_string(groups) + ")");
  };
  complain(between(1, stride), "stride " + text(stride) + " must be at least 1" + kAtMost);
  complain(between(1, dilation), "dilation " + text(dilation) + " must be at least 1" + kAtMost);
  complain(between(0, padding), "padding " + text(padding) + " must not be negative" + kAtMost);
  complain(groups >= 1 && x.size(1) % groups == 0 && weight.size(0) % groups == 0,
           "groups must divide the channels of x and of the output");
  complain(weight.size(1) * groups == x.size(1),
           "weight is for " + std::to_string(weight.size(1) * groups) + " input channels, x has " +
               std::to_string(x.size(1)));
  complain(weight.size(2) >= 1 && weight.size(3) >= 1, "the kernel is empty");
  complain(!bias.defined() || bias.sizes() == Shape{weight.size(0)},
           "bias must have " + std::to_string(weight.size(0)) + " elements" +
               (bias.defined() ? ", got " + to_string(bias.sizes()) : std::string()));
  complain(x.dtype() == weight.dtype() && (!bias.defined() || bias.dtype() == x.dtype()),
           "x, weight and bias must have one dtype");
  (void)detail::common_device("conv2d", x, weight, bias);
  const Conv2dShape s{.n = x.size(0),
                      .c = x.size(1),
                      .h = x.size(2),
                      .w = x.size(3),
                      .out_c = weight.size(0),
                      .kh = weight.size(2),
                      .kw = weight.size(3),
                      .stride_h = stride.h,
                      .stride_w = stride.w,
                      .pad_h = padding.h,
                      .pad_w = padding.w,
                      .dilation_h = dilation.h,
                      .dilation_w = dilation.w,
                      .groups = groups};
  complain(s.h + 2 * s.pad_h > s.dilation_h * (s.kh - 1) &&
               s.w + 2 * s.pad_w > s.dilation_w * (s.kw - 1),
           "the kernel is larger than the padded image");
  return s;
}

}  // namespace

Tensor conv2d(const Tensor& given_x, const Tensor& given_weight, const Tensor& given_bias,
              Pair stride, Pair padding, Pair dilation, std::int64_t groups) {
  const profile::Operation operation("conv2d");
  const Tensor x = autocast::lower(given_x), weight = autocast::lower(given_weight),
               bias = autocast::lower(given_bias);
  const Conv2dShape s = conv_shape(x, weight, bias, stride, padding, dilation, groups);
  const Tensor image = x.contiguous(), kernel = weight.contiguous(), wide_image = wide(image),
               wide_kernel = wide(kernel);
  const Tensor offset = bias.defined() ? wide(bias.contiguous()) : bias;
  Tensor y = Tensor::empty({s.n, s.out_c, s.out_h(), s.out_w()}, wide_image.options());
  detail::visit_float_type("conv2d", y.dtype(), [&]<class T>(TypeTag<T>) {
    kernels::conv2d(x.device(), s, input<T>(wide_image), input<T>(wide_kernel), input<T>(offset),
                    output<T>(y));
  });
  return record("Conv2dBackward", {x, weight, bias}, y.to(x.dtype()), {image, kernel},
                [s](const Saved& saved, const Tensor& grad) {
                  const Tensor dy = wide(grad.contiguous()), images = wide(saved[0]),
                               filters = wide(saved[1]);
                  std::vector<Tensor> out(3);
                  detail::visit_float_type("conv2d", dy.dtype(), [&]<class T>(TypeTag<T>) {
                    if (saved.needs(0)) {
                      out[0] = Tensor::empty({s.n, s.c, s.h, s.w}, dy.options());
                      kernels::conv2d_grad_input(dy.device(), s, input<T>(dy), input<T>(filters),
                                                 output<T>(out[0]));
                    }
                    if (saved.needs(1)) {
                      out[1] = Tensor::empty({s.out_c, s.group_c(), s.kh, s.kw}, dy.options());
                      kernels::conv2d_grad_weight(dy.device(), s, input<T>(dy), input<T>(images),
                                                  output<T>(out[1]));
                    }
                    if (saved.needs(2)) {
                      out[2] = Tensor::empty({s.out_c}, dy.options());
                      kernels::conv2d_grad_bias(dy.device(), s, input<T>(dy), output<T>(out[2]));
                    }
                  });
                  for (Tensor& g : out)
                    if (g.defined()) g = g.to(grad.dtype());
                  return out;
                });
}

// ---- pooling ----

namespace {

Pool2dShape pool_shape(const char* function, const Tensor& x, Pair kernel, Pair stride,
                       Pair padding, bool count_include_pad) {
  detail::require_dims(function, "x", x, 4, "(n, channels, height, width)");
  const auto complain = [&](bool fine, const std::string& why) {
    if (!fine) throw UsageError(std::string(function) + ": " + why);
  };
  complain(between(1, kernel), "window " + text(kernel) + " must be at least 1x1" + kAtMost);
  complain(between(1, stride), "stride " + text(stride) + " must be at least 1" + kAtMost);
  complain(between(0, padding) && 2 * padding.h <= kernel.h && 2 * padding.w <= kernel.w,
           "padding " + text(padding) + " must be between 0 and half the window " + text(kernel));
  const Pool2dShape s{.planes = x.size(0) * x.size(1),
                      .h = x.size(2),
                      .w = x.size(3),
                      .kh = kernel.h,
                      .kw = kernel.w,
                      .stride_h = stride.h,
                      .stride_w = stride.w,
                      .pad_h = padding.h,
                      .pad_w = padding.w,
                      .count_include_pad = count_include_pad};
  complain(
      s.h >= 1 && s.w >= 1 && s.h + 2 * s.pad_h >= s.kh && s.w + 2 * s.pad_w >= s.kw,
      "window " + text(kernel) + " is larger than the padded image of " + to_string(x.sizes()));
  complain(s.h * s.w <= std::numeric_limits<std::int32_t>::max(),
           "planes of more than 2^31 - 1 pixels are not supported, got " + to_string(x.sizes()));
  return s;
}

Tensor averaged(const char* function, const char* node, const Tensor& x, const Pool2dShape& s) {
  const Tensor image = wide(x.contiguous());
  Tensor y = Tensor::empty({x.size(0), x.size(1), s.out_h(), s.out_w()}, image.options());
  detail::visit_float_type(function, image.dtype(), [&]<class T>(TypeTag<T>) {
    kernels::avg_pool2d(x.device(), s, input<T>(image), output<T>(y));
  });
  return record(node, {x}, y.to(x.dtype()), {},
                [s, function, shape = x.sizes()](const Saved&, const Tensor& grad) {
                  const Tensor dy = wide(grad.contiguous());
                  const Tensor dx = Tensor::empty(shape, dy.options());
                  detail::visit_float_type(function, dy.dtype(), [&]<class T>(TypeTag<T>) {
                    kernels::avg_pool2d_grad(dy.device(), s, input<T>(dy), output<T>(dx));
                  });
                  return std::vector<Tensor>{dx.to(grad.dtype())};
                });
}

}  // namespace

Tensor max_pool2d(const Tensor& x, Pair kernel, Pair stride, Pair padding) {
  const profile::Operation operation("max_pool2d");
  const Pool2dShape s = pool_shape("max_pool2d", x, kernel, stride, padding, true);
  const Tensor image = wide(x.contiguous());
  const Shape out{x.size(0), x.size(1), s.out_h(), s.out_w()};
  Tensor y = Tensor::empty(out, image.options());
  const Tensor index = Tensor::empty(out, {DType::i32, x.device()});
  detail::visit_float_type("max_pool2d", image.dtype(), [&]<class T>(TypeTag<T>) {
    kernels::max_pool2d(x.device(), s, input<T>(image), output<T>(y), output<std::int32_t>(index));
  });
  return record("MaxPool2dBackward", {x}, y.to(x.dtype()), {index},
                [s, shape = x.sizes()](const Saved& saved, const Tensor& grad) {
                  const Tensor dy = wide(grad.contiguous());
                  const Tensor dx = Tensor::empty(shape, dy.options());
                  detail::visit_float_type("max_pool2d", dy.dtype(), [&]<class T>(TypeTag<T>) {
                    kernels::max_pool2d_grad(dy.device(), s, input<T>(dy),
                                             input<std::int32_t>(saved[0]), output<T>(dx));
                  });
                  return std::vector<Tensor>{dx.to(grad.dtype())};
                });
}

Tensor avg_pool2d(const Tensor& x, Pair kernel, Pair stride, Pair padding, bool count_include_pad) {
  const profile::Operation operation("avg_pool2d");
  return averaged("avg_pool2d", "AvgPool2dBackward", x,
                  pool_shape("avg_pool2d", x, kernel, stride, padding, count_include_pad));
}

Tensor global_avg_pool2d(const Tensor& x) {
  const profile::Operation operation("global_avg_pool2d");
  detail::require_dims("global_avg_pool2d", "x", x, 4, "(n, channels, height, width)");
  const Pair all{x.size(2), x.size(3)};
  return averaged("global_avg_pool2d", "GlobalAvgPool2dBackward", x,
                  pool_shape("global_avg_pool2d", x, all, all, {0, 0}, true));
}

}  // namespace ringsmith
