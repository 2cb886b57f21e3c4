// Copies: contiguous, clone, conversion, copy_ and fill_, on a device and between devices.
#include "kernels/copy.hpp"

#include "runtime/device/profiler.hpp"
#include "runtime/device/transfer.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

namespace {

// The first byte of a non-empty view, and the end of its last element.
std::pair<const std::byte*, const std::byte*> extent(const Tensor& t) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < t.sizes().size(); ++d) last += (t.sizes()[d] - 1) * t.strides()[d];
  const std::byte* begin = data_of(t);
  return {begin, begin + static_cast<std::size_t>(last + 1) * size_of(t.dtype())};
}

bool may_overlap(const Tensor& a, const Tensor& b) {
  const auto [a0, a1] = extent(a);
  const auto [b0, b1] = extent(b);
  return a0 < b1 && b0 < a1;
}

// `to` and `from` have the same shape and device.
void copy_on_device(const Tensor& to, const Tensor& from) {
  visit_dtype(to.dtype(), [&]<class D>(TypeTag<D>) {
    visit_dtype(from.dtype(), [&]<class S>(TypeTag<S>) {
      kernels::copy(to.device(), to.view_of<D>(), from.view_of<const S>());
    });
  });
}

// Transfers one contiguous range of bytes in the source's dtype. Conversion, and the copy to
// strided memory, run on the target's device.
void copy_between_devices(const Tensor& to, const Tensor& from) {
  const Tensor dense = from.contiguous();
  const bool direct = to.is_contiguous() && to.dtype() == from.dtype();
  const Tensor landing = direct ? to : Tensor::empty(to.sizes(), {from.dtype(), to.device()});
  {
    const Bytes size = size_in_bytes(dense);
    profile::KernelScope profiled;
    if (profile::enabled())
      profiled.begin("transfer", to.device().is_cuda() ? to.device() : from.device(),
                     {0, 2 * static_cast<double>(size.value)});
    transfer(data_of(landing), landing.device(), data_of(dense), dense.device(), size);
  }
  if (!direct) copy_on_device(to, landing);
}

Tensor copy_of(const Tensor& t, TensorOptions options) {
  Tensor out = Tensor::empty(t.sizes(), options);
  out.copy_(t);
  return out;
}

}  // namespace

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }

Tensor Tensor::clone() const { return copy_of(*this, options()); }

Tensor Tensor::to(DType wanted) const {
  return wanted == dtype() ? *this : copy_of(*this, {wanted, device()});
}

Tensor Tensor::to(Device wanted) const {
  return wanted == device() ? *this : copy_of(*this, {dtype(), wanted});
}

bool Tensor::is_pinned() const {
  return device().is_cpu() && PinnedBlock::around(storage()->data(), storage()->size()) != nullptr;
}

Tensor Tensor::pin_memory() const {
  require(device().is_cpu(), "pin_memory: the tensor is on " + device().str() +
                                 ": only memory of the host can be pinned");
  if (is_pinned()) return *this;
  const Bytes size = size_in_bytes(*this);
  const auto block = std::make_shared<PinnedBlock>(size);
  const Tensor out = from_storage(Storage::adopt(block->data(), size, block), sizes(),
                                  contiguous_strides(sizes()), 0, dtype());
  out.copy_(*this);
  return out;
}

void Tensor::copy_(const Tensor& source) const {
  Tensor from = source.sizes() == sizes() ? source : source.expand(sizes());
  if (numel() == 0) return;
  if (from.device() != device()) {
    copy_between_devices(*this, from);
    bump_version();
    return;
  }
  if (may_overlap(*this, from) && !(from.storage_offset() == storage_offset() &&
                                    from.strides() == strides() && from.dtype() == dtype()))
    from = from.clone();
  copy_on_device(*this, from);
  bump_version();
}

void Tensor::fill_(double value) const {
  visit_dtype(dtype(), [&]<class T>(TypeTag<T>) {
    kernels::fill(device(), view_of<T>(), kernels::convert<T>(value));
  });
  bump_version();
}

}  // namespace ringsmith
