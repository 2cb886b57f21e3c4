// conv2d: x (n, c, h, w), weight (out, c / groups, kh, kw), bias (out) or undefined.
#include "kernels/conv.hpp"

#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/functions/support.hpp"

namespace ringsmith {

using detail::input, detail::output;

namespace {

using kernels::Conv2dShape;

std::string text(Pair p) { return std::to_string(p.h) + "x" + std::to_string(p.w); }

Conv2dShape checked(const Tensor& x, const Tensor& weight, const Tensor& bias, Pair stride,
                    Pair padding, Pair dilation, std::int64_t groups) {
  detail::require_dims("conv2d", "x", x, 4, "(n, channels, height, width)");
  detail::require_dims("conv2d", "weight", weight, 4, "(out, channels / groups, height, width)");
  const auto complain = [&](bool fine, const std::string& why) {
    if (!fine)
      throw UsageError("conv2d: " + why + " (x " + to_string(x.sizes()) + ", weight " +
                       to_string(weight.sizes()) + ", groups " + std::to_string(groups) + ")");
  };
  complain(stride.h >= 1 && stride.w >= 1, "stride " + text(stride) + " must be at least 1");
  complain(dilation.h >= 1 && dilation.w >= 1,
           "dilation " + text(dilation) + " must be at least 1");
  complain(padding.h >= 0 && padding.w >= 0, "padding " + text(padding) + " must not be negative");
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

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, Pair stride, Pair padding,
              Pair dilation, std::int64_t groups) {
  const Conv2dShape s = checked(x, weight, bias, stride, padding, dilation, groups);
  const Tensor image = x.contiguous(), kernel = weight.contiguous();
  const Tensor offset = bias.defined() ? bias.contiguous() : bias;
  Tensor y = Tensor::empty({s.n, s.out_c, s.out_h(), s.out_w()}, x.options());
  detail::visit_float_type("conv2d", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::conv2d(x.device(), s, input<T>(image), input<T>(kernel), input<T>(offset),
                    output<T>(y));
  });
  record("Conv2dBackward", {x, weight, bias}, y, {image, kernel},
         [s](const Saved& saved, const Tensor& grad) {
           const Tensor dy = grad.contiguous();
           std::vector<Tensor> out(3);
           detail::visit_float_type("conv2d", dy.dtype(), [&](auto tag) {
             using T = typename decltype(tag)::type;
             if (saved.needs(0)) {
               out[0] = Tensor::empty({s.n, s.c, s.h, s.w}, dy.options());
               kernels::conv2d_grad_input(dy.device(), s, input<T>(dy), input<T>(saved[1]),
                                          output<T>(out[0]));
             }
             if (saved.needs(1)) {
               out[1] = Tensor::empty({s.out_c, s.group_c(), s.kh, s.kw}, dy.options());
               kernels::conv2d_grad_weight(dy.device(), s, input<T>(dy), input<T>(saved[0]),
                                           output<T>(out[1]));
             }
             if (saved.needs(2)) {
               out[2] = Tensor::empty({s.out_c}, dy.options());
               kernels::conv2d_grad_bias(dy.device(), s, input<T>(dy), output<T>(out[2]));
             }
           });
           return out;
         });
  return y;
}

}  // namespace ringsmith
