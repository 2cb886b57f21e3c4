// sum, mean, var and max.
#include <string>
#include <utility>

#include "kernels/reduction.hpp"
#include "runtime/autograd/autocast.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/functions/support.hpp"
#include "runtime/device/profiler.hpp"

namespace ringsmith {

using detail::input, detail::output;

namespace {

using raw::Binary;
using raw::Scalar;
using Grads = std::vector<Tensor>;

Tensor spread(const Tensor& g, const Shape& sizes, const std::vector<bool>& reduced) {
  Shape kept = sizes;
  for (std::size_t d = 0; d < kept.size(); ++d)
    if (reduced[d]) kept[d] = 1;
  return g.view(kept).expand(sizes);
}

std::int64_t count_of(const Shape& sizes, const std::vector<bool>& reduced) {
  std::int64_t n = 1;
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (reduced[d]) n *= sizes[d];
  return n;
}

kernels::Reduced along(const Tensor& x, int dim) {
  return {x.size(dim), x.strides()[static_cast<std::size_t>(dim)]};
}
template <class T>
kernels::View<T> without(const Tensor& x, int dim) {
  return x.select(dim, 0).view_of<T>();
}

int wrap(const Tensor& x, int dim, const char* what) {
  (void)raw::reduced_dims(x, {dim}, what);  // checks dim
  return dim < 0 ? dim + x.dim() : dim;
}

}  // namespace

Tensor sum(const Tensor& given, const std::vector<int>& dims, bool keepdim) {
  const profile::Operation operation("sum");
  const Tensor x = autocast::f32(given);
  const std::vector<bool> reduced = raw::reduced_dims(x, dims, "sum");
  return record("SumBackward", {x}, raw::sum(x, reduced, keepdim, "sum"), {},
                [sizes = x.sizes(), reduced](const Saved&, const Tensor& g) {
                  return Grads{spread(g, sizes, reduced)};
                });
}

Tensor mean(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  const profile::Operation operation("mean");
  const std::vector<bool> reduced = raw::reduced_dims(x, dims, "mean");
  const auto n = static_cast<double>(count_of(x.sizes(), reduced));
  return record(
      "MeanBackward", {x},
      raw::scalar(Scalar::div, raw::sum(x, reduced, keepdim, "mean"), n, "mean"), {},
      [sizes = x.sizes(), reduced, n](const Saved&, Tensor g) {
        return Grads{spread(raw::scalar(Scalar::div, std::move(g), n, "mean"), sizes, reduced)};
      });
}

// Two passes, the mean first, to avoid cancellation.
Tensor var(const Tensor& x, int dim, bool unbiased, bool keepdim) {
  if (is_half(x.dtype())) return to(var(to(x, DType::f32), dim, unbiased, keepdim), x.dtype());
  const profile::Operation operation("var");
  const std::vector<bool> reduced = raw::reduced_dims(x, {dim}, "var");
  const auto n = static_cast<double>(count_of(x.sizes(), reduced));
  const double divisor = unbiased ? n - 1 : n;
  const Tensor average = raw::scalar(Scalar::div, raw::sum(x, reduced, true, "var"), n, "var");
  const Tensor off = raw::binary(Binary::sub, x, average, "var");
  return record(
      "VarBackward", {x},
      raw::scalar(Scalar::div,
                  raw::sum(raw::binary(Binary::mul, off, off, "var"), reduced, keepdim, "var"),
                  divisor, "var"),
      {off}, [reduced, divisor](const Saved& saved, Tensor g) {
        const Tensor scaled = raw::scalar(Scalar::mul, std::move(g), 2 / divisor, "var");
        return Grads{
            raw::binary(Binary::mul, saved[0], spread(scaled, saved[0].sizes(), reduced), "var")};
      });
}

Tensor max(const Tensor& x) {
  if (is_half(x.dtype())) return to(max(to(x, DType::f32)), x.dtype());  // exact in both directions
  const profile::Operation operation("max");
  require(x.numel() > 0, "max: a tensor of shape " + to_string(x.sizes()) + " has no maximum");
  const Tensor flat = x.contiguous().view({-1});
  Tensor y = Tensor::empty({}, x.options());
  const Tensor index = Tensor::empty({}, {DType::i64, x.device()});
  raw::visit_arithmetic(x.dtype(), "max", [&]<class T>(TypeTag<T>) {
    kernels::max(x.device(), y.view_of<T>(), index.view_of<std::int64_t>(),
                 without<const T>(flat, 0), along(flat, 0));
  });
  return record("MaxBackward", {x}, y, {flat, y},
                [sizes = x.sizes()](const Saved& saved, const Tensor& g) {
                  const Tensor gx = empty_like(saved[0]);
                  raw::visit_arithmetic(g.dtype(), "max", [&]<class T>(TypeTag<T>) {
                    kernels::max_all_backward(g.device(), output<T>(gx), input<T>(saved[0]),
                                              input<T>(saved[1]), input<T>(g));
                  });
                  return Grads{gx.view(sizes)};
                });
}

std::pair<Tensor, Tensor> max(const Tensor& x, int dim, bool keepdim) {
  if (is_half(x.dtype())) {
    const auto [values, indices] = max(to(x, DType::f32), dim, keepdim);
    return {to(values, x.dtype()), indices};
  }
  const profile::Operation operation("max");
  const int d = wrap(x, dim, "max");
  require(x.size(d) > 0, "max: dimension " + std::to_string(dim) + " of shape " +
                             to_string(x.sizes()) + " is empty");
  Shape sizes = x.sizes();
  sizes[static_cast<std::size_t>(d)] = 1;
  const Tensor values = Tensor::empty(sizes, x.options());
  const Tensor indices = Tensor::empty(sizes, {DType::i64, x.device()});
  raw::visit_arithmetic(x.dtype(), "max", [&]<class T>(TypeTag<T>) {
    kernels::max(x.device(), without<T>(values, d), without<std::int64_t>(indices, d),
                 without<const T>(x, d), along(x, d));
  });
  Tensor y = keepdim ? values : values.select(d, 0);
  record("MaxBackward", {x}, y, {indices},
         [sizes = x.sizes(), kept = values.sizes(), d](const Saved& saved, const Tensor& g) {
           const Tensor gx = Tensor::empty(sizes, g.options());
           const Tensor gy = g.reshape(kept);
           raw::visit_arithmetic(g.dtype(), "max", [&]<class T>(TypeTag<T>) {
             kernels::max_backward(g.device(), without<T>(gx, d),
                                   without<const std::int64_t>(saved[0], d),
                                   without<const T>(gy, d), along(gx, d));
           });
           return Grads{gx};
         });
  return {y, keepdim ? indices : indices.select(d, 0)};
}

}  // namespace ringsmith
