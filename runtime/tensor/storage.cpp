#include "runtime/tensor/storage.hpp"

#include <utility>

#include "runtime/tensor/allocator.hpp"
#include "runtime/tensor/check.hpp"

namespace ringsmith {

Storage::Storage(std::byte* data, Bytes size, bool owned, std::shared_ptr<void> keeper,
                 Device device)
    : data_(data), size_(size), owned_(owned), keeper_(std::move(keeper)), device_(device) {}

Storage::~Storage() {
  if (owned_) host_allocator::free(data_, size_);
}

std::shared_ptr<Storage> Storage::allocate(Bytes size, Device device) {
  check(device.is_cpu(),
        [&] { return "no memory on device " + device.str() + ": this build has cpu only"; });
  std::byte* data = host_allocator::allocate(size);
  return std::shared_ptr<Storage>(new Storage(data, size, true, nullptr, device));
}

std::shared_ptr<Storage> Storage::adopt(std::byte* data, Bytes size, std::shared_ptr<void> keeper,
                                        Device device) {
  return std::shared_ptr<Storage>(new Storage(data, size, false, std::move(keeper), device));
}

}  // namespace ringsmith
