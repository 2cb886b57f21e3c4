#include "runtime/tensor/raw.hpp"

#include <algorithm>
#include <utility>

namespace ringsmith::raw {

namespace {

// Calls f with the type tag of a dtype that has arithmetic.
template <class F>
void visit_arithmetic(DType dtype, const char* what, F&& f) {
  if (dtype == DType::f32) return f(TypeTag<float>{});
  if (dtype == DType::f64) return f(TypeTag<double>{});
  throw UsageError(std::string(what) + " works on f32 and f64, not on " +
                   std::string(name_of(dtype)) + ": convert with to()");
}

Tensor room_for(Tensor& x, const Shape& sizes) {
  if (x.is_sole_owner() && x.is_contiguous() && x.sizes() == sizes) return x;
  return Tensor::empty(sizes, {x.dtype(), x.device()});
}

}  // namespace

Shape broadcast_shape(const char* what, const Shape& a, const Shape& b) {
  Shape out(std::max(a.size(), b.size()));
  for (std::size_t i = 1; i <= out.size(); ++i) {  // from the back
    const std::int64_t x = i <= a.size() ? a[a.size() - i] : 1;
    const std::int64_t y = i <= b.size() ? b[b.size() - i] : 1;
    if (x != y && x != 1 && y != 1)
      throw UsageError(std::string(what) + ": shapes " + to_string(a) + " and " + to_string(b) +
                       " do not broadcast");
    out[out.size() - i] = x == 1 ? y : x;
  }
  return out;
}

Tensor unary(Unary op, Tensor x, const char* what) {
  const Tensor out = room_for(x, x.sizes());
  visit_arithmetic(x.dtype(), what, [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::cpu::unary<T>(op, out.view_of<T>(), x.view_of<const T>());
  });
  return out;
}

Tensor binary(Binary op, Tensor a, const Tensor& b, const char* what) {
  if (a.dtype() != b.dtype())
    throw UsageError(std::string(what) + ": dtypes " + std::string(name_of(a.dtype())) + " and " +
                     std::string(name_of(b.dtype())) + " differ: convert with to()");
  const bool same = a.sizes() == b.sizes();
  const Shape shape = same ? a.sizes() : broadcast_shape(what, a.sizes(), b.sizes());
  const Tensor out = room_for(a, shape);
  const Tensor wide_a = a.sizes() == shape ? a : a.expand(shape);
  const Tensor wide_b = b.sizes() == shape ? b : b.expand(shape);
  visit_arithmetic(a.dtype(), what, [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::cpu::binary<T>(op, out.view_of<T>(), wide_a.view_of<const T>(),
                            wide_b.view_of<const T>());
  });
  return out;
}

Tensor scalar(Scalar op, Tensor x, double s, const char* what) {
  const Tensor out = room_for(x, x.sizes());
  visit_arithmetic(x.dtype(), what, [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::cpu::scalar<T>(op, out.view_of<T>(), x.view_of<const T>(), static_cast<T>(s));
  });
  return out;
}

void add_into(const Tensor& to, const Tensor& from) {
  if (to.dtype() == DType::f16 || to.dtype() == DType::bf16) {  // one rounding, of the sum
    const Tensor sum = binary(Binary::add, to.to(DType::f32), from.to(DType::f32), "add_into");
    to.copy_(sum);
    return;
  }
  const Tensor same = from.dtype() == to.dtype() ? from : from.to(to.dtype());
  visit_arithmetic(to.dtype(), "add_into", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Tensor wide = same.sizes() == to.sizes() ? same : same.expand(to.sizes());
    kernels::cpu::binary<T>(Binary::add, to.view_of<T>(), to.view_of<const T>(),
                            wide.view_of<const T>());
  });
  to.bump_version();
}

}  // namespace ringsmith::raw
