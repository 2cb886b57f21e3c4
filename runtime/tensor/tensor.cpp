// The tensor object: properties, access to its memory, and its text. Views and copies are in
// separate files.

#include "runtime/tensor/tensor.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <utility>

#include "kernels/copy.hpp"

namespace ringsmith {

struct Tensor::Impl {
  std::shared_ptr<Storage> storage;
  Shape sizes;
  Shape strides;
  std::int64_t offset = 0;
  std::int64_t numel = 0;
  DType dtype = DType::f32;
  bool contiguous = true;
  std::shared_ptr<AutogradMeta> meta;
};

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::int64_t numel_of(const Shape& shape) {
  std::int64_t n = 1;
  bool none = false;
  for (const std::int64_t size : shape) {
    if (size < 0) throw UsageError("sizes must not be negative: " + to_string(shape));
    none = none || size == 0;
    // Strides use max(size, 1), so a size of 0 must not hide an overflow of the other sizes.
    if (__builtin_mul_overflow(n, std::max<std::int64_t>(size, 1), &n))
      throw UsageError("too large: " + to_string(shape));
  }
  return none ? 0 : n;
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= shape[d] > 0 ? shape[d] : 1;
  }
  return strides;
}

namespace {

// The strides of dimensions of size 1 are irrelevant, as are all strides of an empty tensor.
bool strides_are_contiguous(const Shape& sizes, const Shape& strides, std::int64_t numel) {
  if (numel == 0) return true;
  std::int64_t expected = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] == 1) continue;
    if (strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

}  // namespace

Tensor Tensor::empty(const Shape& sizes, TensorOptions options) {
  auto impl = std::make_shared<Impl>();
  impl->numel = numel_of(sizes);
  impl->storage = Storage::allocate(
      bytes_of(Elements(static_cast<std::size_t>(impl->numel)), size_of(options.dtype)),
      options.device);
  impl->sizes = sizes;
  impl->strides = contiguous_strides(sizes);
  impl->dtype = options.dtype;
  return Tensor(std::move(impl));
}

Tensor Tensor::from_storage(std::shared_ptr<Storage> storage, const Shape& sizes,
                            const Shape& strides, std::int64_t offset, DType dtype) {
  if (storage == nullptr) throw UsageError("from_storage: no storage");
  if (sizes.size() != strides.size())
    throw UsageError("from_storage: sizes " + to_string(sizes) + " and strides " +
                     to_string(strides) + " must have the same number of dimensions");
  auto impl = std::make_shared<Impl>();
  impl->numel = numel_of(sizes);
  std::int64_t last = offset;  // largest element index that the view can touch
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (strides[d] < 0) throw UsageError("from_storage: negative strides are not supported");
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(std::max<std::int64_t>(sizes[d] - 1, 0), strides[d], &reach) ||
        __builtin_add_overflow(last, reach, &last))
      throw UsageError("too large: sizes " + to_string(sizes) + ", strides " + to_string(strides));
  }
  const auto room = static_cast<std::int64_t>(storage->size().value / size_of(dtype));
  if (offset < 0 || (impl->numel > 0 && last >= room))
    throw UsageError("view of sizes " + to_string(sizes) + ", strides " + to_string(strides) +
                     ", offset " + std::to_string(offset) + " leaves its storage of " +
                     std::to_string(room) + " elements");
  impl->storage = std::move(storage);
  impl->sizes = sizes;
  impl->strides = strides;
  impl->offset = offset;
  impl->dtype = dtype;
  impl->contiguous = strides_are_contiguous(sizes, strides, impl->numel);
  return Tensor(std::move(impl));
}

const Tensor::Impl& Tensor::impl() const {
  if (impl_ == nullptr) throw UsageError("use of an undefined tensor");
  return *impl_;
}

const Shape& Tensor::sizes() const { return impl().sizes; }
const Shape& Tensor::strides() const { return impl().strides; }
int Tensor::dim() const { return static_cast<int>(impl().sizes.size()); }
std::int64_t Tensor::numel() const { return impl().numel; }
DType Tensor::dtype() const { return impl().dtype; }
Device Tensor::device() const { return impl().storage->device(); }
std::int64_t Tensor::storage_offset() const { return impl().offset; }
const std::shared_ptr<Storage>& Tensor::storage() const { return impl().storage; }
bool Tensor::is_contiguous() const { return impl().contiguous; }

std::int64_t Tensor::size(int d) const {
  const int n = dim();
  if (d < -n || d >= n)
    throw UsageError("dimension " + std::to_string(d) + " is outside of shape " +
                     to_string(sizes()));
  return impl_->sizes[static_cast<std::size_t>(d < 0 ? d + n : d)];
}

void* Tensor::checked_data(DType expected) const {
  const Impl& i = impl();
  if (i.dtype != expected)
    throw UsageError("tensor of dtype " + std::string(name_of(i.dtype)) + " used as " +
                     std::string(name_of(expected)));
  return data_of(*this);
}

void Tensor::refuse_host(const char* what) const {
  throw UsageError(std::string(what) + " works on host tensors, but this tensor is on " +
                   device().str() + ": copy it with cpu() first");
}

void Tensor::record_stream(const Stream& stream) const { impl().storage->record_stream(stream); }

void Tensor::require_contiguous(const char* what) const {
  if (!impl().contiguous)
    throw UsageError(std::string(what) + " needs a contiguous tensor; sizes " + to_string(sizes()) +
                     ", strides " + to_string(strides()) + ": call contiguous() first");
}

void Tensor::require_one_element(const char* what) const {
  if (impl().numel != 1)
    throw UsageError(std::string(what) + " needs a tensor of one element, got shape " +
                     to_string(sizes()));
}

kernels::Layout Tensor::layout() const {
  const Impl& i = impl();
  if (i.sizes.size() > kernels::kMaxDims)
    throw UsageError("kernels take at most " + std::to_string(kernels::kMaxDims) +
                     " dimensions, got shape " + to_string(i.sizes));
  kernels::Layout layout;
  layout.dims = static_cast<int>(i.sizes.size());
  for (std::size_t d = 0; d < i.sizes.size(); ++d) {
    layout.sizes[d] = i.sizes[d];
    layout.strides[d] = i.strides[d];
  }
  return layout;
}

const std::shared_ptr<AutogradMeta>& Tensor::autograd_meta() const { return impl().meta; }
void Tensor::set_autograd_meta(std::shared_ptr<AutogradMeta> meta) const {
  (void)impl();
  impl_->meta = std::move(meta);
}

void Tensor::set_data(const Tensor& other) const {
  if (other.sizes() != impl().sizes || other.dtype() != impl().dtype)
    throw UsageError("set_data: a tensor of shape " + to_string(other.sizes()) + ", dtype " +
                     std::string(name_of(other.dtype())) + " cannot replace one of shape " +
                     to_string(sizes()) + ", dtype " + std::string(name_of(dtype())));
  impl_->storage = other.impl().storage;
  impl_->strides = other.impl().strides;
  impl_->offset = other.impl().offset;
  impl_->contiguous = other.impl().contiguous;
}

std::uint32_t Tensor::version() const { return impl().storage->version(); }
void Tensor::bump_version() const { impl().storage->bump_version(); }

bool Tensor::is_sole_owner() const {
  const Impl& i = impl();
  return impl_.use_count() == 1 && i.storage.use_count() == 1 && i.storage->is_owned() &&
         i.meta == nullptr &&
         static_cast<std::size_t>(i.numel) * size_of(i.dtype) == i.storage->size().value;
}

// ---- human-readable text: nested brackets, long dimensions abbreviated in the middle ----

namespace {

constexpr std::int64_t kShowAll = 1000;  // elements; larger tensors are abbreviated
constexpr std::int64_t kEdge = 3;        // items shown at either end of an abbreviated dimension

void append_value(std::string& text, const Tensor& t, std::int64_t offset) {
  visit_dtype(t.dtype(), [&]<class T>(TypeTag<T>) {
    const T value = t.data<T>()[offset];
    if constexpr (std::is_same_v<T, bool>)
      text += value ? "true" : "false";
    else if constexpr (std::is_integral_v<T>)
      text += std::to_string(value);
    else
      text += fmt::format("{:.6g}", kernels::convert<double>(value));
  });
}

void append(std::string& text, const Tensor& t, std::size_t d, std::int64_t offset, bool cut) {
  if (d == t.sizes().size()) return append_value(text, t, offset);
  const std::int64_t n = t.sizes()[d];
  text += '[';
  for (std::int64_t i = 0; i < n; ++i) {
    if (i > 0) text += ", ";
    if (cut && n > 2 * kEdge && i == kEdge) {
      text += "..., ";
      i = n - kEdge;
    }
    append(text, t, d + 1, offset + i * t.strides()[d], cut);
  }
  text += ']';
}

}  // namespace

std::string Tensor::str() const {
  if (!defined()) return "undefined";
  std::string text;
  append(text, cpu(), 0, 0, numel() > kShowAll);
  text += " " + std::string(name_of(dtype())) + " " + to_string(sizes());
  return device().is_cpu() ? text : text + " " + device().str();
}

Tensor full(const Shape& sizes, double value, TensorOptions options) {
  Tensor out = Tensor::empty(sizes, options);
  out.fill_(value);
  return out;
}

Tensor scalar(double value, DType dtype) { return full({}, value, {dtype}); }

Tensor arange(double start, double stop, double step, TensorOptions options) {
  require(step != 0 && std::isfinite(start) && std::isfinite(stop) && std::isfinite(step),
          "arange: start, stop and step must be finite, and step not zero");
  const double count = std::max(0.0, std::ceil((stop - start) / step));
  require(count < 0x1p63, fmt::format("arange: too large: {} to {} by {}", start, stop, step));
  Tensor out = Tensor::empty({static_cast<std::int64_t>(count)}, {options.dtype});
  visit_dtype(options.dtype, [&]<class T>(TypeTag<T>) {
    T* to = out.data<T>();
    for (std::int64_t i = 0; i < out.numel(); ++i)
      to[i] = kernels::convert<T>(start + static_cast<double>(i) * step);
  });
  return out.to(options.device);
}

Tensor rand(const Shape& sizes, Generator& g) {
  Tensor out = Tensor::empty(sizes);
  fill_uniform(out.span<float>(), 0.0, 1.0, g);
  return out;
}

Tensor randn(const Shape& sizes, Generator& g) {
  Tensor out = Tensor::empty(sizes);
  fill_normal(out.span<float>(), 0.0, 1.0, g);
  return out;
}

}  // namespace ringsmith
