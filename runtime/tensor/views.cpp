// Views: new sizes and strides over the same storage.
#include <algorithm>
#include <optional>

#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

namespace {

std::size_t wrap(const Tensor& t, int dim, const char* what, int extra = 0) {
  const int n = t.dim() + extra;
  if (dim < -n || dim >= n)
    throw UsageError(std::string(what) + ": dimension " + std::to_string(dim) +
                     " is outside of shape " + to_string(t.sizes()));
  return static_cast<std::size_t>(dim < 0 ? dim + n : dim);
}

Tensor view_on(const Tensor& t, const Shape& sizes, const Shape& strides, std::int64_t offset) {
  return Tensor::from_storage(t.storage(), sizes, strides, offset, t.dtype());
}

Shape resolve(const Tensor& t, const Shape& wanted, const char* what) {
  Shape sizes = wanted;
  std::int64_t known = 1;
  std::optional<std::size_t> unknown;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == -1 && !unknown) {
      unknown = d;
    } else {
      if (sizes[d] < 0)
        throw UsageError(std::string(what) + ": shape " + to_string(wanted) +
                         " has a negative size; one size may be -1, which is inferred");
      if (__builtin_mul_overflow(known, sizes[d], &known))
        throw UsageError(std::string(what) + ": too large: " + to_string(wanted));
    }
  }
  if (unknown && known > 0) sizes[*unknown] = t.numel() / known;
  if ((unknown && known == 0) || numel_of(sizes) != t.numel())
    throw UsageError(std::string(what) + ": shape " + to_string(t.sizes()) + " does not fit into " +
                     to_string(wanted));
  return sizes;
}

// Returns the strides of a view of shape `sizes` that contains t's elements in order, or nothing if
// only a copy can have that shape. Runs of mutually contiguous dimensions form chunks; a new
// dimension may split a chunk, but must not span two.
std::optional<Shape> view_strides(const Tensor& t, const Shape& sizes) {
  if (t.is_contiguous()) return contiguous_strides(sizes);
  Shape strides(sizes.size(), 1);
  const Shape& old_sizes = t.sizes();
  const Shape& old_strides = t.strides();
  auto next = static_cast<std::int64_t>(sizes.size()) - 1;  // new dimension to fill; counts down
  std::int64_t chunk = 1;
  std::int64_t base = old_strides.empty() ? 1 : old_strides.back();
  for (std::size_t d = old_sizes.size(); d-- > 0;) {
    chunk *= old_sizes[d];
    const bool ends = d == 0 || (old_sizes[d - 1] != 1 && old_strides[d - 1] != chunk * base);
    if (!ends) continue;
    std::int64_t filled = 1;
    while (next >= 0) {
      const auto n = static_cast<std::size_t>(next);
      if (filled == chunk && sizes[n] != 1) break;
      strides[n] = filled * base;
      filled *= sizes[n];
      if (filled > chunk) return std::nullopt;
      --next;
    }
    if (filled != chunk) return std::nullopt;
    if (d > 0) {
      chunk = 1;
      base = old_strides[d - 1];
    }
  }
  return next < 0 ? std::optional(strides) : std::nullopt;
}

}  // namespace

Tensor Tensor::view(const Shape& wanted) const {
  const Shape shape = resolve(*this, wanted, "view");
  const std::optional<Shape> s = view_strides(*this, shape);
  if (!s)
    throw UsageError("view: sizes " + to_string(sizes()) + " with strides " + to_string(strides()) +
                     " cannot be viewed as " + to_string(shape) +
                     " without a copy: use reshape or contiguous");
  return view_on(*this, shape, *s, storage_offset());
}

Tensor Tensor::reshape(const Shape& wanted) const {
  const Shape shape = resolve(*this, wanted, "reshape");
  const std::optional<Shape> s = view_strides(*this, shape);
  return s ? view_on(*this, shape, *s, storage_offset()) : contiguous().view(shape);
}

Tensor Tensor::transpose(int dim0, int dim1) const {
  const std::size_t a = wrap(*this, dim0, "transpose"), b = wrap(*this, dim1, "transpose");
  Shape new_sizes = sizes(), new_strides = strides();
  std::swap(new_sizes[a], new_sizes[b]);
  std::swap(new_strides[a], new_strides[b]);
  return view_on(*this, new_sizes, new_strides, storage_offset());
}

Tensor Tensor::permute(const std::vector<int>& dims) const {
  std::vector<bool> seen(sizes().size());
  Shape new_sizes, new_strides;
  for (const int dim : dims) {
    const std::size_t d = wrap(*this, dim, "permute");
    if (seen[d]) throw UsageError("permute: dimension " + std::to_string(dim) + " is listed twice");
    seen[d] = true;
    new_sizes.push_back(sizes()[d]);
    new_strides.push_back(strides()[d]);
  }
  if (new_sizes.size() != sizes().size())
    throw UsageError("permute: shape " + to_string(sizes()) +
                     " needs all of its dimensions listed");
  return view_on(*this, new_sizes, new_strides, storage_offset());
}

Tensor Tensor::expand(const Shape& wanted) const {
  const auto fail = [&] {
    throw UsageError("expand: shape " + to_string(sizes()) + " does not broadcast to " +
                     to_string(wanted));
  };
  if (wanted.size() < sizes().size()) fail();
  const std::size_t fresh = wanted.size() - sizes().size();  // new dimensions in front
  Shape new_sizes = wanted, new_strides(wanted.size(), 0);
  for (std::size_t d = 0; d < wanted.size(); ++d) {
    if (d < fresh) {
      if (wanted[d] < 0) fail();
      continue;
    }
    const std::int64_t old = sizes()[d - fresh];
    if (wanted[d] == -1 || wanted[d] == old) {
      new_sizes[d] = old;
      new_strides[d] = strides()[d - fresh];
    } else if (old != 1 || wanted[d] < 0) {
      fail();
    }
  }
  return view_on(*this, new_sizes, new_strides, storage_offset());
}

// As in Python, negative positions count from the end and positions out of range are clamped.
Tensor Tensor::slice(int dim, std::int64_t start, std::int64_t stop, std::int64_t step) const {
  const std::size_t d = wrap(*this, dim, "slice");
  if (step <= 0) throw UsageError("slice: step must be positive, got " + std::to_string(step));
  const std::int64_t n = sizes()[d];
  const auto place = [n](std::int64_t p) {
    return std::clamp<std::int64_t>(p < 0 ? p + n : p, 0, n);
  };
  start = place(start);
  stop = std::max(start, place(stop));
  Shape new_sizes = sizes(), new_strides = strides();
  new_sizes[d] = stop > start ? (stop - start - 1) / step + 1 : 0;
  if (new_sizes[d] > 1) new_strides[d] *= step;  // irrelevant for a single element
  return view_on(*this, new_sizes, new_strides, storage_offset() + start * strides()[d]);
}

Tensor Tensor::select(int dim, std::int64_t index) const {
  const std::size_t d = wrap(*this, dim, "select");
  const std::int64_t n = sizes()[d];
  if (index < -n || index >= n)
    throw UsageError("select: index " + std::to_string(index) + " is outside of dimension " +
                     std::to_string(dim) + " of shape " + to_string(sizes()));
  if (index < 0) index += n;
  Shape new_sizes = sizes(), new_strides = strides();
  new_sizes.erase(new_sizes.begin() + static_cast<std::ptrdiff_t>(d));
  new_strides.erase(new_strides.begin() + static_cast<std::ptrdiff_t>(d));
  return view_on(*this, new_sizes, new_strides, storage_offset() + index * strides()[d]);
}

Tensor Tensor::squeeze(int dim) const {
  const std::size_t d = wrap(*this, dim, "squeeze");
  return sizes()[d] == 1 ? select(dim, 0) : detach();
}

Tensor Tensor::unsqueeze(int dim) const {
  const std::size_t d = wrap(*this, dim, "unsqueeze", 1);
  Shape new_sizes = sizes(), new_strides = strides();
  const std::int64_t stride = d < sizes().size() ? sizes()[d] * strides()[d] : 1;
  new_sizes.insert(new_sizes.begin() + static_cast<std::ptrdiff_t>(d), 1);
  new_strides.insert(new_strides.begin() + static_cast<std::ptrdiff_t>(d), stride);
  return view_on(*this, new_sizes, new_strides, storage_offset());
}

Tensor Tensor::as_strided(const Shape& new_sizes, const Shape& new_strides,
                          std::int64_t offset) const {
  return view_on(*this, new_sizes, new_strides, offset);
}

Tensor Tensor::detach() const { return view_on(*this, sizes(), strides(), storage_offset()); }

}  // namespace ringsmith
