// Tensor: a strided view of shared storage, with PyTorch's names and semantics.
//
//   storage  [ 0 1 2 3 4 5 6 7 8 9 10 11 ]
//   sizes {3,4}, strides {4,1}, offset 0      t
//   sizes {4,3}, strides {1,4}, offset 0      t.transpose(0, 1): same bytes, no copy
//
// A Tensor is a handle: a copy shares the same tensor object and its gradient. The operations here
// never record a graph; the differentiable ones are in runtime/autograd/functions.hpp. Gradient
// state is an opaque AutogradMeta, so that this layer does not depend on the layer above. grad(),
// requires_grad() and backward() are defined in runtime/autograd.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/view.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/stream.hpp"
#include "runtime/tensor/storage.hpp"

namespace ringsmith {

using Shape = std::vector<std::int64_t>;

[[nodiscard]] std::string to_string(const Shape& shape);  // "[2, 3]"
[[nodiscard]] std::int64_t numel_of(const Shape& shape);
[[nodiscard]] Shape contiguous_strides(const Shape& shape);

struct AutogradMeta {  // base of the state that runtime/autograd attaches
  virtual ~AutogradMeta() = default;
};

struct TensorOptions {
  DType dtype = DType::f32;
  Device device = Device::cpu();
  bool operator==(const TensorOptions&) const = default;
};

class Tensor {
 public:
  Tensor() = default;  // undefined

  // ---- construction (zeros, full, arange, from_vector and randn: at the end of this file) ----
  static Tensor empty(const Shape& sizes, TensorOptions options = {});
  // A view of storage. The offset is in elements.
  static Tensor from_storage(std::shared_ptr<Storage> storage, const Shape& sizes,
                             const Shape& strides, std::int64_t offset, DType dtype);

  // ---- properties ----
  [[nodiscard]] bool defined() const { return impl_ != nullptr; }
  [[nodiscard]] const Shape& sizes() const;
  [[nodiscard]] const Shape& strides() const;      // elements
  [[nodiscard]] std::int64_t size(int dim) const;  // negative dims count from the end
  [[nodiscard]] int dim() const;
  [[nodiscard]] std::int64_t numel() const;
  [[nodiscard]] DType dtype() const;
  [[nodiscard]] Device device() const;
  [[nodiscard]] TensorOptions options() const { return {dtype(), device()}; }
  [[nodiscard]] std::int64_t storage_offset() const;  // elements
  [[nodiscard]] const std::shared_ptr<Storage>& storage() const;
  [[nodiscard]] bool is_contiguous() const;
  [[nodiscard]] bool is_same(const Tensor& other) const { return impl_ == other.impl_; }
  [[nodiscard]] std::string str() const;  // values and shape, for messages and debugging

  // ---- values for the host: T must be dtype()'s C++ type, possibly const (UsageError) ----
  // data() and span() refer to the tensor's own memory and throw UsageError for a tensor on a GPU.
  // item() and to_vector() copy the values, and wait for the device.
  template <class T>
  [[nodiscard]] T* data() const {  // first element of the view
    require_host("data()");
    return kernel_data<T>();
  }
  template <class T>
  [[nodiscard]] std::span<T> span() const {  // contiguous tensors only (UsageError)
    require_host("span()");
    return kernel_span<T>();
  }
  template <class T>
  [[nodiscard]] T item() const {  // one element only (UsageError)
    require_one_element("item()");
    return device().is_cpu() ? *data<T>() : *cpu().data<T>();
  }
  template <class T>
  [[nodiscard]] std::vector<T> to_vector() const {  // row-major, for any strides
    const Tensor flat = cpu().contiguous();
    const T* values = flat.data<T>();
    return std::vector<T>(values, values + flat.numel());
  }

  // ---- memory for kernels, on any device: host code must not dereference these pointers ----
  template <class T>
  [[nodiscard]] T* kernel_data() const {
    return static_cast<T*>(checked_data(dtype_of<T>()));
  }
  template <class T>
  [[nodiscard]] std::span<T> kernel_span() const {  // contiguous tensors only (UsageError)
    require_contiguous("a kernel");
    return {kernel_data<T>(), static_cast<std::size_t>(numel())};
  }
  template <class T>
  [[nodiscard]] kernels::View<T> view_of() const {  // at most kernels::kMaxDims dimensions
    return {kernel_data<T>(), layout()};
  }
  [[nodiscard]] kernels::Layout layout() const;

  // ---- views: share storage ----
  [[nodiscard]] Tensor view(const Shape& sizes) const;     // infers a size of -1; never copies
  [[nodiscard]] Tensor reshape(const Shape& sizes) const;  // a view if possible, otherwise a copy
  [[nodiscard]] Tensor transpose(int dim0, int dim1) const;
  [[nodiscard]] Tensor permute(const std::vector<int>& dims) const;
  [[nodiscard]] Tensor expand(const Shape& sizes) const;  // -1 keeps a size
  [[nodiscard]] Tensor slice(int dim, std::int64_t start, std::int64_t stop,
                             std::int64_t step = 1) const;
  [[nodiscard]] Tensor select(int dim, std::int64_t index) const;
  [[nodiscard]] Tensor squeeze(int dim) const;
  [[nodiscard]] Tensor unsqueeze(int dim) const;
  [[nodiscard]] Tensor as_strided(const Shape& sizes, const Shape& strides,
                                  std::int64_t offset) const;
  // The same data as a new tensor object, without gradient history.
  [[nodiscard]] Tensor detach() const;

  // ---- copies ----
  [[nodiscard]] Tensor contiguous() const;  // itself if already contiguous
  [[nodiscard]] Tensor clone() const;
  [[nodiscard]] Tensor to(DType dtype) const;  // itself if it has this dtype
  // Copies to a device are enqueued on the current streams; a copy to the CPU is complete on
  // return. Returns the tensor itself if it is already on `device`.
  [[nodiscard]] Tensor to(Device device) const;
  [[nodiscard]] Tensor cpu() const { return to(Device::cpu()); }
  // A copy in pinned host memory, or the tensor itself if it is already pinned. CPU only
  // (UsageError). A later copy to a device reads the pinned tensor asynchronously: do not write to
  // that tensor before the copy is complete.
  [[nodiscard]] Tensor pin_memory() const;
  [[nodiscard]] bool is_pinned() const;
  [[nodiscard]] Tensor cuda(int index = 0) const { return to(Device::cuda(index)); }
  void copy_(const Tensor& source) const;  // broadcasts and converts, from any device
  void fill_(double value) const;
  void zero_() const { fill_(0.0); }

  // ---- gradients, defined in runtime/autograd/tensor_grad.cpp ----
  [[nodiscard]] bool requires_grad() const;
  const Tensor& requires_grad_(bool on = true) const;  // leaves of floating dtype only
  [[nodiscard]] Tensor grad() const;                   // undefined if there is none
  void set_grad(const Tensor& grad) const;             // undefined clears it
  [[nodiscard]] bool is_leaf() const;
  void backward(const Tensor& gradient = {}) const;  // gradient is optional for one element

  // Moves the tensor object itself and its .grad. Handles to the tensor and its hooks remain valid,
  // so shared weights remain shared and optimizers keep their parameters. Leaves only. Clears the
  // gradient target (runtime/autograd/tensor_grad.hpp).
  void move_to(Device device) const;

  // ---- for runtime/autograd ----
  [[nodiscard]] const std::shared_ptr<AutogradMeta>& autograd_meta() const;
  void set_autograd_meta(std::shared_ptr<AutogradMeta> meta) const;
  // Makes this tensor refer to `other`'s memory. Sizes and dtype must be equal (UsageError).
  void set_data(const Tensor& other) const;
  // Number of in-place writes to the storage through any view. Backward uses this number to detect
  // that a saved tensor has been overwritten.
  [[nodiscard]] std::uint32_t version() const;
  void bump_version() const;
  // True if no other handle shares the tensor object or its storage, the tensor covers the whole
  // storage, and it has neither adopted memory nor gradient state.
  [[nodiscard]] bool is_sole_owner() const;
  // Declares that `stream` also uses the memory. After the last handle is released, the memory is
  // not reused until the work queued on `stream` by then is complete.
  void record_stream(const Stream& stream) const;

 private:
  struct Impl;
  [[nodiscard]] const Impl& impl() const;  // throws UsageError if undefined
  [[nodiscard]] void* checked_data(DType expected) const;
  void require_host(const char* what) const {
    if (!device().is_cpu()) refuse_host(what);
  }
  [[noreturn]] void refuse_host(const char* what) const;
  void require_contiguous(const char* what) const;
  void require_one_element(const char* what) const;
  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

// The first byte of a tensor, and its size. Used by functions that move bytes.
[[nodiscard]] inline std::byte* data_of(const Tensor& t) {
  return t.storage()->data() + static_cast<std::size_t>(t.storage_offset()) * size_of(t.dtype());
}
[[nodiscard]] inline Bytes size_in_bytes(const Tensor& t) {
  return bytes_of(Elements(static_cast<std::size_t>(t.numel())), size_of(t.dtype()));
}

// ---- new tensors with values, on the CPU by default ----
Tensor full(const Shape& sizes, double value, TensorOptions options = {});
inline Tensor zeros(const Shape& sizes, TensorOptions options = {}) {
  return full(sizes, 0.0, options);
}
inline Tensor ones(const Shape& sizes, TensorOptions options = {}) {
  return full(sizes, 1.0, options);
}
inline Tensor empty_like(const Tensor& t) { return Tensor::empty(t.sizes(), t.options()); }
inline Tensor zeros_like(const Tensor& t) { return zeros(t.sizes(), t.options()); }
inline Tensor ones_like(const Tensor& t) { return ones(t.sizes(), t.options()); }

// start, start + step, ..., up to but excluding stop; i64 by default. step may be negative.
Tensor arange(double start, double stop, double step = 1, TensorOptions options = {DType::i64});
inline Tensor arange(std::int64_t stop) { return arange(0, static_cast<double>(stop)); }

// Copies the values, row-major. Throws UsageError if their number does not match the shape.
template <class T>
Tensor from_vector(const std::vector<T>& values, const Shape& sizes) {
  Tensor out = Tensor::empty(sizes, {dtype_of<T>()});
  require(static_cast<std::size_t>(out.numel()) == values.size(),
          std::to_string(values.size()) + " values do not fill shape " + to_string(sizes));
  T* to = out.data<T>();
  for (std::size_t i = 0; i < values.size(); ++i) to[i] = values[i];
  return out;
}
template <class T>
Tensor from_vector(const std::vector<T>& values) {
  return from_vector(values, {static_cast<std::int64_t>(values.size())});
}
// A tensor without dimensions.
Tensor scalar(double value, DType dtype = DType::f32);

// f32 tensors on the CPU, with the values of PyTorch's CPU generator. For a GPU, create a tensor on
// the CPU and move it, so that a seed yields the same numbers everywhere. rand is uniform in
// [0, 1); randn is normal with mean 0 and standard deviation 1.
Tensor rand(const Shape& sizes, Generator& g = default_generator());
Tensor randn(const Shape& sizes, Generator& g = default_generator());

}  // namespace ringsmith
