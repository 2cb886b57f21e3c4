// layer_norm over the last dimension.
#include "kernels/layernorm.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/functions/support.hpp"

namespace ringsmith {

using detail::input, detail::output;

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  require(x.defined() && x.dim() >= 1 && x.size(-1) > 0,
          "layer_norm: x needs a last dimension to normalise, got " + detail::shape_of(x));
  for (const Tensor& t : {weight, bias})
    require(!t.defined() || (t.sizes() == Shape{x.size(-1)} && t.dtype() == x.dtype()),
            "layer_norm: weight " + detail::shape_of(weight) + " and bias " +
                detail::shape_of(bias) +
                " must have x's dtype and the size of the last "
                "dimension of x " +
                to_string(x.sizes()));
  const Device device = detail::common_device("layer_norm", x, weight, bias);
  const Tensor in = x.contiguous();
  const Tensor scale = weight.defined() ? weight.contiguous() : Tensor();
  const Tensor shift = bias.defined() ? bias.contiguous() : Tensor();
  const std::int64_t rows = x.numel() / x.size(-1);
  Tensor y = Tensor::empty(x.sizes(), x.options());
  const Tensor mean = Tensor::empty({rows}, x.options()), rstd = Tensor::empty({rows}, x.options());
  const auto visit = [](const Tensor& t, const auto& f) {
    detail::visit_float_type("layer_norm", t.dtype(), f);
  };
  visit(x, [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::layer_norm(device, input<T>(in), input<T>(scale), input<T>(shift), eps, output<T>(y),
                        output<T>(mean), output<T>(rstd));
  });
  // Bias before weight, as in linear.
  record("LayerNormBackward", {bias, weight, x}, y, {in, scale, mean, rstd},
         [visit](const Saved& saved, const Tensor& grad) {
           const Tensor dy = grad.contiguous();
           const Shape vector = {dy.size(-1)};
           std::vector<Tensor> grads(3);
           for (std::size_t i = 0; i < 3; ++i)
             if (saved.needs(i))
               grads[i] = Tensor::empty(i == 2 ? dy.sizes() : vector, dy.options());
           visit(dy, [&](auto tag) {
             using T = typename decltype(tag)::type;
             kernels::layer_norm_backward(dy.device(), input<T>(dy), input<T>(saved[0]),
                                          input<T>(saved[1]), input<T>(saved[2]),
                                          input<T>(saved[3]), output<T>(grads[2]),
                                          output<T>(grads[1]), output<T>(grads[0]));
           });
           return grads;
         });
  return y;
}

}  // namespace ringsmith
