// linear, matmul and embedding.
//
// The backward passes of linear and embedding write the gradients of weights directly to their
// destination (grad_destination): one pass over the gradient instead of three.

#include <array>
#include <vector>

#include "kernels/embedding.hpp"
#include "kernels/matmul.hpp"
#include "runtime/autograd/autocast.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/functions/support.hpp"
#include "runtime/device/profiler.hpp"

namespace ringsmith {

using detail::input, detail::output;

namespace {

using kernels::Matrix;
using kernels::Store;

// Products have kernels for the 16-bit types, too.
template <class F>
void visit_product_type(const char* function, DType dtype, const F& f) {
  if (dtype == DType::f16) return f(TypeTag<f16>{});
  if (dtype == DType::bf16) return f(TypeTag<bf16>{});
  detail::visit_float_type(function, dtype, f);
}

Store store_of(bool accumulate) { return accumulate ? Store::add : Store::replace; }

// The last two dimensions of t as a matrix, at an offset in elements.
template <class T>
Matrix<T> matrix(const Tensor& t, std::int64_t offset = 0) {
  return {t.kernel_data<T>() + offset, t.size(-2), t.size(-1), t.strides()[t.strides().size() - 2],
          t.strides().back()};
}

// t (..., features) as a contiguous (rows, features) matrix.
Tensor flat_rows(const Tensor& t) {
  const std::int64_t features = t.sizes().back();
  const std::int64_t rows = features == 0 ? 0 : t.numel() / features;
  return t.contiguous().view({rows, features});
}

// c = a b over the same batch dimensions; with accumulate, c += a b, and batch strides of c may be
// 0.
void multiply(const Tensor& a, const Tensor& b, const Tensor& c, bool accumulate) {
  const auto batch_dims = static_cast<std::size_t>(c.dim() - 2);
  std::int64_t batches = 1;
  for (std::size_t d = 0; d < batch_dims; ++d) batches *= c.sizes()[d];
  visit_product_type("matmul", c.dtype(), [&]<class T>(TypeTag<T>) {
    for (std::int64_t i = 0; i < batches; ++i) {
      std::array<std::int64_t, 3> at{};
      std::int64_t rest = i;
      for (std::size_t d = batch_dims; d-- > 0;) {
        const std::int64_t index = rest % c.sizes()[d];
        rest /= c.sizes()[d];
        at[0] += index * a.strides()[d];
        at[1] += index * b.strides()[d];
        at[2] += index * c.strides()[d];
      }
      kernels::matmul(c.device(), matrix<T>(a, at[0]), matrix<T>(b, at[1]), matrix<T>(c, at[2]),
                      store_of(accumulate));
    }
  });
}

// Expands the batch dimensions of t to `batch`.
Tensor with_batch(const Tensor& t, const Shape& batch) {
  Shape sizes = batch;
  sizes.push_back(t.size(-2));
  sizes.push_back(t.size(-1));
  return t.expand(sizes);
}

Shape batch_of(const Tensor& a, const Tensor& b) {
  const auto fit = [&](const Shape& from, std::size_t dims, std::size_t d) {
    const std::size_t own = from.size() - 2;
    return d + own < dims ? 1 : from[d + own - dims];
  };
  const auto dims = static_cast<std::size_t>(std::max(a.dim(), b.dim()) - 2);
  Shape batch;
  for (std::size_t d = 0; d < dims; ++d) {
    const std::int64_t x = fit(a.sizes(), dims, d), y = fit(b.sizes(), dims, d);
    require(x == y || x == 1 || y == 1, "matmul: batch dimensions of " + to_string(a.sizes()) +
                                            " and " + to_string(b.sizes()) + " do not broadcast");
    batch.push_back(x == 1 ? y : x);
  }
  return batch;
}

// Returns the product of a and b, summed over the batch dimensions that `sizes` lacks or has as 1
// (the gradient of a broadcast operand). If one matrix b applies to all of a, this is a single
// product.
Tensor product(const Tensor& a, const Tensor& b, const Shape& sizes) {
  if (a.dim() > 2 && b.dim() == 2 && sizes.size() == a.sizes().size()) {
    Tensor c = Tensor::empty(sizes, a.options());
    multiply(flat_rows(a), b, flat_rows(c), false);
    return c;
  }
  const Shape batch = batch_of(a, b);
  Shape full = batch;
  full.insert(full.end(), sizes.end() - 2, sizes.end());
  const bool broadcast = full != sizes;
  if (broadcast && is_half(a.dtype()))  // sum over the batch in f32 and round once
    return product(detail::wide(a), detail::wide(b), sizes).to(a.dtype());
  Tensor c = broadcast ? zeros(sizes, a.options()) : Tensor::empty(sizes, a.options());
  multiply(with_batch(a, batch), with_batch(b, batch), c.expand(full), broadcast);
  return c;
}

}  // namespace

Tensor matmul(const Tensor& given_a, const Tensor& given_b) {
  const profile::Operation operation("matmul");
  const Tensor a = autocast::lower(given_a), b = autocast::lower(given_b);
  require(a.defined() && b.defined() && a.dim() >= 2 && b.dim() >= 2 && a.size(-1) == b.size(-2),
          "matmul: " + detail::shape_of(a) + " and " + detail::shape_of(b) +
              " do not fit (..., m, k) x (..., k, n)");
  require(a.dtype() == b.dtype(), "matmul: dtypes " + std::string(name_of(a.dtype())) + " and " +
                                      std::string(name_of(b.dtype())) + " differ");
  (void)detail::common_device("matmul", a, b);
  Shape sizes = batch_of(a, b);
  sizes.push_back(a.size(-2));
  sizes.push_back(b.size(-1));
  return record("MatmulBackward", {a, b}, product(a, b, sizes), {a, b},
                [](const Saved& saved, const Tensor& grad) {
                  const Tensor& left = saved[0];
                  const Tensor& right = saved[1];
                  std::vector<Tensor> grads(2);
                  if (saved.needs(0))
                    grads[0] = product(grad, right.transpose(-2, -1), left.sizes());
                  if (saved.needs(1))
                    grads[1] = right.dim() == 2
                                   ? product(flat_rows(left).transpose(0, 1), flat_rows(grad),
                                             right.sizes())
                                   : product(left.transpose(-2, -1), grad, right.sizes());
                  return grads;
                });
}

namespace {

void check_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  require(x.defined() && weight.defined() && x.dim() >= 1 && weight.dim() == 2 &&
              x.size(-1) == weight.size(1),
          "linear: x " + detail::shape_of(x) + " and weight " + detail::shape_of(weight) +
              " do not fit (..., in) and (out, in)");
  require(!bias.defined() || bias.sizes() == Shape{weight.size(0)},
          "linear: bias " + detail::shape_of(bias) + " does not fit weight " +
              to_string(weight.sizes()) + ": expected (out)");
  require(x.dtype() == weight.dtype() && (!bias.defined() || bias.dtype() == x.dtype()),
          "linear: x, weight and bias must have one dtype");
}

// Computes the gradients of a bias and a weight, which are the node's inputs `first` and
// `first` + 1. left: linear's x.
template <class T>
void add_weight_gradients(const Saved& saved, std::size_t first, const Tensor& dy,
                          const Tensor& left, const Shape& weight, std::vector<Tensor>& grads) {
  const bool fused = kernels::kIsHalf<T> && saved.needs(first) && saved.needs(first + 1) &&
                     !dy.device().is_cpu() && kernels::cuda::uses_cublaslt();
  if constexpr (kernels::kIsHalf<T>) {
    if (fused)
      grads[first] = Tensor::empty({weight[0]}, dy.options());
    else if (saved.needs(first))
      grads[first] = raw::sum(dy, {true, false}, false, "linear");
  } else if (saved.needs(first)) {
    const auto [db, add] = detail::grad_place(saved, first, {weight[0]}, dy.options());
    kernels::column_sum(dy.device(), matrix<T>(dy), output<T>(db), store_of(add));
    grads[first] = db;
  }
  if (!saved.needs(first + 1)) return;
  const auto [dw, add] = detail::grad_place(saved, first + 1, weight, dy.options());
  const Matrix<T> x = matrix<T>(flat_rows(left));
  if constexpr (kernels::kIsHalf<T>)
    if (fused)
      kernels::weight_gradients(dy.device(), matrix<T>(dy), x, matrix<T>(dw),
                                output<T>(grads[first]), store_of(add));
  if (!fused) kernels::matmul(dy.device(), matrix<T>(dy).t(), x, matrix<T>(dw), store_of(add));
  grads[first + 1] = dw;
}

}  // namespace

Tensor linear(const Tensor& given_x, const Tensor& given_weight, const Tensor& given_bias) {
  const profile::Operation operation("linear");
  // The bias is cast last, so that backward visits its cast before the weight's: the engine runs
  // later nodes first.
  const Tensor x = autocast::lower(given_x), weight = autocast::lower(given_weight),
               bias = autocast::lower(given_bias);
  check_linear(x, weight, bias);
  const Device device = detail::common_device("linear", x, weight, bias);
  Shape sizes = x.sizes();
  sizes.back() = weight.size(0);
  Tensor y = Tensor::empty(sizes, x.options());
  const Tensor rows = x.contiguous();
  const Tensor offsets = bias.defined() ? bias.contiguous() : bias;
  visit_product_type("linear", x.dtype(), [&]<class T>(TypeTag<T>) {
    kernels::linear(device, matrix<T>(flat_rows(rows)), matrix<T>(weight), input<T>(offsets),
                    matrix<T>(flat_rows(y)));
  });
  // The bias comes first, so that its gradient is ready before the weight's, as in PyTorch. The
  // ready order determines the layout of DDP's buckets.
  return record("LinearBackward", {bias, weight, x}, y, {rows, weight},
                [](const Saved& saved, const Tensor& grad) {
                  const Tensor& w = saved[1];
                  const Tensor dy = flat_rows(grad);
                  std::vector<Tensor> grads(3);
                  visit_product_type("linear", dy.dtype(), [&]<class T>(TypeTag<T>) {
                    add_weight_gradients<T>(saved, 0, dy, saved[0], w.sizes(), grads);
                    if (saved.needs(2)) {
                      grads[2] = Tensor::empty(saved[0].sizes(), dy.options());
                      kernels::matmul(dy.device(), matrix<T>(dy), matrix<T>(w),
                                      matrix<T>(flat_rows(grads[2])));
                    }
                  });
                  return grads;
                });
}

namespace {

// Products of 16-bit operands have kernels with GELU, on devices.
template <class F>
void visit_half(DType dtype, const F& f) {
  dtype == DType::f16 ? f(TypeTag<f16>{}) : f(TypeTag<bf16>{});
}

}  // namespace

Tensor feed_forward(const Tensor& given_x, const Tensor& given_up, const Tensor& given_up_bias,
                    const Tensor& given_down, const Tensor& given_down_bias) {
  const Tensor x = autocast::lower(given_x);
  require(x.defined() && given_up_bias.defined() && given_down_bias.defined(),
          "feed_forward: x or a bias is missing");
  if (x.device().is_cpu() || !is_half(x.dtype()) || !kernels::cuda::uses_cublaslt())
    return linear(gelu(linear(x, given_up, given_up_bias), Gelu::tanh), given_down,
                  given_down_bias);
  const profile::Operation operation("feed_forward");
  // In linear's order, so that backward visits the casts in the same order.
  const Tensor up = autocast::lower(given_up), up_bias = autocast::lower(given_up_bias),
               down = autocast::lower(given_down), down_bias = autocast::lower(given_down_bias);
  check_linear(x, up, up_bias);
  Shape wide = x.sizes(), narrow = x.sizes();
  wide.back() = up.size(0);
  const Device device = detail::common_device("feed_forward", x, up, up_bias);
  const Tensor argument = Tensor::empty(wide, x.options()),
               hidden = Tensor::empty(wide, x.options());
  check_linear(hidden, down, down_bias);
  (void)detail::common_device("feed_forward", x, down, down_bias);
  narrow.back() = down.size(0);
  const Tensor y = Tensor::empty(narrow, x.options());
  const Tensor rows = x.contiguous(), first = up_bias.contiguous(), last = down_bias.contiguous();
  visit_half(x.dtype(), [&]<class T>(TypeTag<T>) {
    kernels::linear_gelu(device, matrix<T>(flat_rows(rows)), matrix<T>(up), input<T>(first),
                         matrix<T>(flat_rows(argument)), matrix<T>(flat_rows(hidden)));
    kernels::linear(device, matrix<T>(flat_rows(hidden)), matrix<T>(down), input<T>(last),
                    matrix<T>(flat_rows(y)));
  });
  return record("FeedForwardBackward", {down_bias, down, up_bias, up, x}, y,
                {rows, up, argument, hidden, down}, [](const Saved& saved, const Tensor& grad) {
                  const Tensor& up_weight = saved[1];
                  const Tensor& down_weight = saved[4];
                  const Tensor dy = flat_rows(grad), at = flat_rows(saved[2]);
                  std::vector<Tensor> grads(5);
                  visit_half(dy.dtype(), [&]<class T>(TypeTag<T>) {
                    add_weight_gradients<T>(saved, 0, dy, saved[3], down_weight.sizes(), grads);
                    if (!saved.needs(2) && !saved.needs(3) && !saved.needs(4)) return;
                    const Tensor dargument = Tensor::empty(at.sizes(), dy.options());
                    kernels::gelu_gradient(dy.device(), matrix<T>(dy), matrix<T>(down_weight),
                                           matrix<T>(at), matrix<T>(dargument));
                    add_weight_gradients<T>(saved, 2, dargument, saved[0], up_weight.sizes(),
                                            grads);
                    if (!saved.needs(4)) return;
                    grads[4] = Tensor::empty(saved[0].sizes(), dy.options());
                    kernels::matmul(dy.device(), matrix<T>(dargument), matrix<T>(up_weight),
                                    matrix<T>(flat_rows(grads[4])));
                  });
                  return grads;
                });
}

Tensor embedding(const Tensor& weight, const Tensor& index) {
  const profile::Operation operation("embedding");
  require(weight.defined() && weight.dim() == 2 && index.defined() && index.dtype() == DType::i64,
          "embedding: expected weight (rows, dim) and index of i64, got weight " +
              detail::shape_of(weight) + " and index " + detail::shape_of(index) +
              (index.defined() ? " of " + std::string(name_of(index.dtype())) : std::string()));
  const Device device = detail::common_device("embedding", weight, index);
  const Tensor rows = index.contiguous(), table = detail::wide(weight.contiguous());
  const std::int64_t dim = weight.size(1);
  kernels::check_indices(device, "embedding", input<std::int64_t>(rows), weight.size(0));
  Shape sizes = index.sizes();
  sizes.push_back(dim);
  Tensor out = Tensor::empty(sizes, table.options());
  detail::visit_float_type("embedding", table.dtype(), [&]<class T>(TypeTag<T>) {
    kernels::embedding(device, input<T>(table), dim, input<std::int64_t>(rows), output<T>(out));
  });
  return record("EmbeddingBackward", {weight}, out.to(weight.dtype()), {rows},
                [table_sizes = weight.sizes(), dim](const Saved& saved, const Tensor& grad) {
                  const Tensor dy = detail::wide(grad.contiguous());
                  const auto [dw, add] = detail::grad_place(saved, 0, table_sizes, dy.options());
                  if (!add) dw.zero_();
                  detail::visit_float_type(
                      "embedding", dy.dtype(), [&, to = dw]<class T>(TypeTag<T>) {
                        kernels::embedding_backward(dy.device(), input<T>(dy), dim,
                                                    input<std::int64_t>(saved[0]), output<T>(to));
                      });
                  return std::vector<Tensor>{dw.to(grad.dtype())};
                });
}

}  // namespace ringsmith
