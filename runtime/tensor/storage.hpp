// A block of bytes that tensors share.
//
// allocate() takes it from the caching host allocator (runtime/tensor/allocator.hpp), adopt() wraps
// memory that somebody else owns, for instance a gradient bucket in communication memory: the
// keeper is held until the last tensor lets go.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/base/units.hpp"
#include "runtime/device/device.hpp"

namespace ringsmith {

class Storage {
 public:
  // Uninitialised, aligned to 64 bytes. Zero bytes are allowed.
  static std::shared_ptr<Storage> allocate(Bytes size, Device device = Device::cpu());
  static std::shared_ptr<Storage> adopt(std::byte* data, Bytes size, std::shared_ptr<void> keeper,
                                        Device device = Device::cpu());

  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage() = default;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] Bytes size() const { return size_; }
  [[nodiscard]] Device device() const { return device_; }

 private:
  Storage(std::byte* data, Bytes size, std::shared_ptr<void> keeper, Device device);
  std::byte* data_;
  Bytes size_;
  std::shared_ptr<void> keeper_;
  Device device_;
};

}  // namespace ringsmith
