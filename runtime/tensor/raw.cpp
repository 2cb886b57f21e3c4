#include "runtime/tensor/raw.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/optim.hpp"
#include "kernels/reduction.hpp"

namespace ringsmith::raw {

namespace {

Tensor room_for(Tensor& x, const Shape& sizes) {
  if (x.is_sole_owner() && x.is_contiguous() && x.sizes() == sizes) return x;
  return Tensor::empty(sizes, x.options());
}

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

// True if a kernel must be called on widened copies.
bool needs_widening(const Tensor& x) { return is_half(x.dtype()) && x.device().is_cpu(); }

Tensor wide_mask(const Tensor& mask, const Tensor& x, const char* what) {
  if (mask.dtype() != DType::boolean)
    throw UsageError(std::string(what) + ": the mask must be bool, not " +
                     std::string(name_of(mask.dtype())));
  (void)common_device(what, x, mask);
  if (mask.sizes() == x.sizes()) return mask;
  if (broadcast_shape(what, x.sizes(), mask.sizes()) != x.sizes())
    throw UsageError(std::string(what) + ": mask of shape " + to_string(mask.sizes()) +
                     " does not broadcast to " + to_string(x.sizes()));
  return mask.expand(x.sizes());
}

}  // namespace

void refuse_devices(const char* what, Device a, Device b) {
  throw UsageError(std::string(what) + ": operands are on " + a.str() + " and on " + b.str() +
                   ": move them together with to()");
}

Tensor unary(Unary op, Tensor x, const char* what) {
  if (needs_widening(x)) return unary(op, wide(x), what).to(x.dtype());
  Tensor out = room_for(x, x.sizes());
  visit_with_halves(x.dtype(), what, [&]<class T>(TypeTag<T>) {
    kernels::unary(out.device(), op, out.view_of<T>(), x.view_of<const T>());
  });
  return out;
}

Tensor binary(Binary op, Tensor a, const Tensor& b, const char* what) {
  if (a.dtype() != b.dtype())
    throw UsageError(std::string(what) + ": dtypes " + std::string(name_of(a.dtype())) + " and " +
                     std::string(name_of(b.dtype())) + " differ: convert with to()");
  (void)common_device(what, a, b);
  if (needs_widening(a)) return binary(op, wide(a), wide(b), what).to(a.dtype());
  const bool same = a.sizes() == b.sizes();
  const Shape shape = same ? a.sizes() : broadcast_shape(what, a.sizes(), b.sizes());
  Tensor out = room_for(a, shape);
  const Tensor wide_a = a.sizes() == shape ? a : a.expand(shape);
  const Tensor wide_b = b.sizes() == shape ? b : b.expand(shape);
  visit_with_halves(a.dtype(), what, [&]<class T>(TypeTag<T>) {
    kernels::binary(out.device(), op, out.view_of<T>(), wide_a.view_of<const T>(),
                    wide_b.view_of<const T>());
  });
  return out;
}

Tensor scalar(Scalar op, Tensor x, double s, const char* what) {
  if (needs_widening(x)) return scalar(op, wide(x), s, what).to(x.dtype());
  Tensor out = room_for(x, x.sizes());
  visit_with_halves(x.dtype(), what, [&]<class T>(TypeTag<T>) {
    kernels::scalar(out.device(), op, out.view_of<T>(), x.view_of<const T>(),
                    static_cast<kernels::Wide<T>>(s));
  });
  return out;
}

Tensor masked_fill(Tensor x, const Tensor& mask, double value, const char* what) {
  if (needs_widening(x)) return masked_fill(wide(x), mask, value, what).to(x.dtype());
  const Tensor wide = wide_mask(mask, x, what);
  Tensor out = room_for(x, x.sizes());
  visit_with_halves(x.dtype(), what, [&]<class T>(TypeTag<T>) {
    kernels::masked_fill(out.device(), out.view_of<T>(), x.view_of<const T>(),
                         wide.view_of<const bool>(), static_cast<kernels::Wide<T>>(value));
  });
  return out;
}

Tensor masked_scale(Tensor x, const Tensor& mask, double scale, const char* what) {
  if (needs_widening(x)) return masked_scale(wide(x), mask, scale, what).to(x.dtype());
  const Tensor wide = wide_mask(mask, x, what);
  Tensor out = room_for(x, x.sizes());
  visit_with_halves(x.dtype(), what, [&]<class T>(TypeTag<T>) {
    kernels::masked_scale(out.device(), out.view_of<T>(), x.view_of<const T>(),
                          wide.view_of<const bool>(), static_cast<kernels::Wide<T>>(scale));
  });
  return out;
}

Tensor add_widened(Tensor a, const Tensor& b, const char* what) {
  (void)common_device(what, a, b);
  if (a.device().is_cpu()) return binary(Binary::add, std::move(a), wide(b), what);
  const Shape shape =
      a.sizes() == b.sizes() ? a.sizes() : broadcast_shape(what, a.sizes(), b.sizes());
  const Tensor out = room_for(a, shape), to_a = a.expand(shape), to_b = b.expand(shape);
  visit_half(b.dtype(), what, [&]<class T>(TypeTag<T>) {
    kernels::add_widened(out.device(), out.view_of<float>(), to_a.view_of<const float>(),
                         to_b.view_of<const T>());
  });
  return out;
}

void add_into(const Tensor& to, const Tensor& from) {
  (void)common_device("add_into", to, from);
  const bool same = from.dtype() == to.dtype();
  const Tensor wide_from = from.sizes() == to.sizes() ? from : from.expand(to.sizes());
  if (is_half(to.dtype()) && (!same || to.device().is_cpu())) {  // rounded once, after the sum
    const Tensor sum = binary(Binary::add, wide(to), from.to(DType::f32), "add_into");
    to.copy_(sum);
    return;
  }
  if (to.dtype() == DType::f32 && is_half(from.dtype()) && to.device().is_cuda()) {
    visit_half(from.dtype(), "add_into", [&]<class T>(TypeTag<T>) {
      kernels::add_widened(to.device(), to.view_of<float>(), to.view_of<const float>(),
                           wide_from.view_of<const T>());
    });
  } else {
    const Tensor added = same ? wide_from : wide_from.to(to.dtype());
    visit_with_halves(to.dtype(), "add_into", [&]<class T>(TypeTag<T>) {
      kernels::binary(to.device(), Binary::add, to.view_of<T>(), to.view_of<const T>(),
                      added.view_of<const T>());
    });
  }
  to.bump_version();
}

void scalar_into(Scalar op, const Tensor& x, double s, const char* what) {
  if (needs_widening(x)) {
    x.copy_(scalar(op, wide(x), s, what));
    return;
  }
  visit_with_halves(x.dtype(), what, [&]<class T>(TypeTag<T>) {
    kernels::scalar(x.device(), op, x.view_of<T>(), x.view_of<const T>(),
                    static_cast<kernels::Wide<T>>(s));
  });
  x.bump_version();
}

std::vector<bool> reduced_dims(const Tensor& x, const std::vector<int>& dims, const char* what) {
  const auto n = static_cast<std::size_t>(x.dim());
  std::vector<bool> reduced(n, dims.empty());
  for (const int dim : dims) {
    const int d = dim < 0 ? dim + x.dim() : dim;
    if (d < 0 || d >= x.dim())
      throw UsageError(std::string(what) + ": dimension " + std::to_string(dim) +
                       " is outside of shape " + to_string(x.sizes()));
    if (reduced[static_cast<std::size_t>(d)])
      throw UsageError(std::string(what) + ": dimension " + std::to_string(dim) +
                       " is named twice");
    reduced[static_cast<std::size_t>(d)] = true;
  }
  return reduced;
}

Tensor sum(const Tensor& x, const std::vector<bool>& reduced, bool keepdim, const char* what) {
  if (needs_widening(x)) return sum(wide(x), reduced, keepdim, what).to(x.dtype());
  Shape kept, full = x.sizes();
  for (std::size_t d = 0; d < full.size(); ++d) {
    if (reduced[d]) full[d] = 1;
    if (!reduced[d]) kept.push_back(full[d]);
  }
  Tensor out = Tensor::empty(full, x.options());
  visit_with_halves(x.dtype(), what, [&]<class T>(TypeTag<T>) {
    if (x.numel() == 0) {
      out.fill_(0);
      return;
    }
    // A stride of 0 indicates to the kernel that a dimension is reduced.
    kernels::View<T> to = out.view_of<T>();
    for (std::size_t d = 0; d < full.size(); ++d) {
      to.layout.sizes[d] = x.sizes()[d];
      if (reduced[d]) to.layout.strides[d] = 0;
    }
    kernels::sum(out.device(), to, x.view_of<const T>());
  });
  return keepdim ? out : out.view(kept);
}

bool all_finite(const Tensor& x) {
  if (!is_floating(x.dtype())) return true;
  const Tensor values = wide(x).contiguous();
  const Tensor squares = Tensor::empty({1}, {DType::f64, x.device()});
  visit_arithmetic(values.dtype(), "all_finite", [&]<class T>(TypeTag<T>) {
    kernels::sum_of_squares(x.device(), values.kernel_span<T>(), squares.kernel_span<double>());
  });
  if (std::isfinite(squares.item<double>())) return true;
  if (x.dtype() != DType::f64) return false;  // squares of f32 cannot overflow in f64
  const std::vector<double> all = values.cpu().to_vector<double>();
  return std::ranges::all_of(all, [](double v) { return std::isfinite(v); });
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.sizes() == shape) return x;
  const std::size_t fresh = x.sizes().size() - shape.size();
  std::vector<bool> reduced(x.sizes().size());
  for (std::size_t d = 0; d < reduced.size(); ++d)
    reduced[d] = d < fresh || (shape[d - fresh] == 1 && x.sizes()[d] != 1);
  return sum(x, reduced, true, "sum_to").view(shape);
}

}  // namespace ringsmith::raw
