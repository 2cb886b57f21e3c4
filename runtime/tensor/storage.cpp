#include "runtime/tensor/storage.hpp"

#include <utility>

#include "runtime/device/memory.hpp"
#include "runtime/tensor/allocator.hpp"

namespace ringsmith {

Storage::Storage(std::byte* data, Bytes size, bool owned, std::shared_ptr<void> keeper,
                 Device device)
    : data_(data), size_(size), owned_(owned), keeper_(std::move(keeper)), device_(device) {}

Storage::~Storage() {
  if (!owned_) return;
  device_.is_cpu() ? host_allocator::free(data_, size_) : device_allocator::free(device_, data_);
}

std::shared_ptr<Storage> Storage::allocate(Bytes size, Device device) {
  std::byte* data =
      device.is_cpu() ? host_allocator::allocate(size) : device_allocator::allocate(device, size);
  return std::shared_ptr<Storage>(new Storage(data, size, true, nullptr, device));
}

std::shared_ptr<Storage> Storage::adopt(std::byte* data, Bytes size, std::shared_ptr<void> keeper,
                                        Device device) {
  return std::shared_ptr<Storage>(new Storage(data, size, false, std::move(keeper), device));
}

void Storage::record_stream(const Stream& stream) const {
  if (owned_ && device_.is_cuda()) device_allocator::record_use(device_, data_, stream);
}

}  // namespace ringsmith
