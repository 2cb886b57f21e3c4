// Pooling over (n, c, h, w): the n * c planes are pooled one by one.
#include "kernels/pool.hpp"

#include <limits>

#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/functions/support.hpp"

namespace ringsmith {

using detail::input, detail::output;

namespace {

using kernels::Pool2dShape;

Pool2dShape checked(const char* function, const Tensor& x, Pair kernel, Pair stride, Pair padding,
                    bool count_include_pad) {
  detail::require_dims(function, "x", x, 4, "(n, channels, height, width)");
  const auto complain = [&](bool fine, const std::string& why) {
    if (!fine) throw UsageError(std::string(function) + ": " + why);
  };
  const auto text = [](Pair p) { return std::to_string(p.h) + "x" + std::to_string(p.w); };
  complain(kernel.h >= 1 && kernel.w >= 1, "window " + text(kernel) + " must be at least 1x1");
  complain(stride.h >= 1 && stride.w >= 1, "stride " + text(stride) + " must be at least 1");
  complain(
      padding.h >= 0 && padding.w >= 0 && 2 * padding.h <= kernel.h && 2 * padding.w <= kernel.w,
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

// avg_pool2d and global_avg_pool2d: the same kernels.
Tensor averaged(const char* function, const char* node, const Tensor& x, const Pool2dShape& s) {
  const Tensor image = x.contiguous();
  Tensor y = Tensor::empty({x.size(0), x.size(1), s.out_h(), s.out_w()}, x.options());
  detail::visit_float_type(function, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::avg_pool2d(x.device(), s, input<T>(image), output<T>(y));
  });
  record(node, {x}, y, {}, [s, function, shape = x.sizes()](const Saved&, const Tensor& grad) {
    const Tensor dy = grad.contiguous();
    const Tensor dx = Tensor::empty(shape, dy.options());
    detail::visit_float_type(function, dy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      kernels::avg_pool2d_grad(dy.device(), s, input<T>(dy), output<T>(dx));
    });
    return std::vector<Tensor>{dx};
  });
  return y;
}

}  // namespace

Tensor max_pool2d(const Tensor& x, Pair kernel, Pair stride, Pair padding) {
  const Pool2dShape s = checked("max_pool2d", x, kernel, stride, padding, true);
  const Tensor image = x.contiguous();
  const Shape out{x.size(0), x.size(1), s.out_h(), s.out_w()};
  Tensor y = Tensor::empty(out, x.options());
  const Tensor index = Tensor::empty(out, {DType::i32, x.device()});
  detail::visit_float_type("max_pool2d", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::max_pool2d(x.device(), s, input<T>(image), output<T>(y), output<std::int32_t>(index));
  });
  record("MaxPool2dBackward", {x}, y, {index},
         [s, shape = x.sizes()](const Saved& saved, const Tensor& grad) {
           const Tensor dy = grad.contiguous();
           const Tensor dx = Tensor::empty(shape, dy.options());
           detail::visit_float_type("max_pool2d", dy.dtype(), [&](auto tag) {
             using T = typename decltype(tag)::type;
             kernels::max_pool2d_grad(dy.device(), s, input<T>(dy), input<std::int32_t>(saved[0]),
                                      output<T>(dx));
           });
           return std::vector<Tensor>{dx};
         });
  return y;
}

Tensor avg_pool2d(const Tensor& x, Pair kernel, Pair stride, Pair padding, bool count_include_pad) {
  return averaged("avg_pool2d", "AvgPool2dBackward", x,
                  checked("avg_pool2d", x, kernel, stride, padding, count_include_pad));
}

Tensor global_avg_pool2d(const Tensor& x) {
  detail::require_dims("global_avg_pool2d", "x", x, 4, "(n, channels, height, width)");
  const Pair all{x.size(2), x.size(3)};
  return averaged("global_avg_pool2d", "GlobalAvgPool2dBackward", x,
                  checked("global_avg_pool2d", x, all, all, {0, 0}, true));
}

}  // namespace ringsmith
