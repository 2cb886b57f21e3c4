#include "kernels/embedding.hpp"

#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/functions/support.hpp"

namespace ringsmith {

using detail::input, detail::output;

Tensor embedding(const Tensor& weight, const Tensor& index) {
  require(weight.defined() && weight.dim() == 2 && index.defined() && index.dtype() == DType::i64,
          "embedding: expected weight (rows, dim) and index of i64, got weight " +
              detail::shape_of(weight) + " and index " + detail::shape_of(index) +
              (index.defined() ? " of " + std::string(name_of(index.dtype())) : std::string()));
  const Device device = detail::common_device("embedding", weight, index);
  const Tensor rows = index.contiguous(), table = weight.contiguous();
  const std::int64_t dim = weight.size(1);
  kernels::check_indices(device, "embedding", input<std::int64_t>(rows), weight.size(0));
  Shape sizes = index.sizes();
  sizes.push_back(dim);
  Tensor out = Tensor::empty(sizes, weight.options());
  detail::visit_float_type("embedding", weight.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::embedding(device, input<T>(table), dim, input<std::int64_t>(rows), output<T>(out));
  });
  record("EmbeddingBackward", {weight}, out, {rows},
         [table_sizes = weight.sizes(), dim](const Saved& saved, const Tensor& grad) {
           const Tensor dy = grad.contiguous();
           const auto [dw, add] = detail::grad_place(saved, 0, table_sizes, dy.options());
           if (!add) dw.zero_();
           detail::visit_float_type("embedding", dy.dtype(), [&, to = dw](auto tag) {
             using T = typename decltype(tag)::type;
             kernels::embedding_backward(dy.device(), input<T>(dy), dim,
                                         input<std::int64_t>(saved[0]), output<T>(to));
           });
           return std::vector<Tensor>{dw};
         });
  return out;
}

}  // namespace ringsmith
