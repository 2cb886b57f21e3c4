// A block of bytes shared by tensors, and the host allocator that provides it.
//
// allocate() gets the block from the caching host allocator below or, on a GPU, from the caching
// device allocator (runtime/device/memory.hpp) for the current stream. adopt() wraps memory that
// has another owner, e.g. a gradient bucket in communication memory, and holds `keeper` as long as
// the block exists.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/base/allocator.hpp"
#include "runtime/base/units.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith {

class Storage {
 public:
  // Returns uninitialised memory, aligned to 64 bytes. A size of zero is allowed. If the device's
  // memory is exhausted, throws OutOfMemoryError (CPU) or CudaError (GPU). Throws UsageError if the
  // device does not exist or, on the CPU, if no machine could have so much memory.
  static std::shared_ptr<Storage> allocate(Bytes size, Device device = Device::cpu());
  static std::shared_ptr<Storage> adopt(std::byte* data, Bytes size, std::shared_ptr<void> keeper,
                                        Device device = Device::cpu());

  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage();

  [[nodiscard]] std::byte* data() const {
    if (released_ != nullptr) refuse();
    return data_;
  }
  [[nodiscard]] Bytes size() const { return size_; }
  [[nodiscard]] Device device() const { return device_; }
  // See Tensor::record_stream. A no-op for host memory and adopted memory.
  void record_stream(const Stream& stream) const;
  // False for adopted memory, which may have other users.
  [[nodiscard]] bool is_owned() const { return owned_; }

  // Returns the block to its allocator. All views keep their shapes and are valid again after
  // restore(), which allocates an uninitialised block; until then, data() throws a UsageError that
  // ends with `why`, a literal. Owned memory only. Both are no-ops if there is nothing to do.
  void release(const char* why);
  void restore();
  [[nodiscard]] bool is_released() const { return released_ != nullptr; }

  // Number of in-place writes through all views of the storage (Tensor::version).
  [[nodiscard]] std::uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

  // The gradient of a part of a tensor may already be that part of a tensor of zeros. The function
  // that computes it records this with the number of elements in the part, so that the slice's
  // backward need not copy the gradient.
  void set_zero_outside(std::int64_t part) { part_ = part; }
  [[nodiscard]] bool is_zero_outside(std::int64_t part) const { return part_ == part; }

 private:
  Storage(std::byte* data, Bytes size, bool owned, std::shared_ptr<void> keeper, Device device);
  [[noreturn]] void refuse() const;
  std::byte* data_;
  Bytes size_;
  bool owned_;  // true: the block is returned to its allocator
  std::shared_ptr<void> keeper_;
  Device device_;
  std::atomic<std::uint32_t> version_{0};
  std::int64_t part_ = -1;          // -1: nothing is known
  const char* released_ = nullptr;  // why there is no block
};

// The caching host allocator keeps tensors' memory instead of returning it to the system.
//
// A training step allocates the same sizes repeatedly. Fresh pages cost a page fault per 4 KiB; a
// block from the cache costs a list operation. Every size class (runtime/base/allocator.hpp) has a
// list of free blocks. Blocks are aligned to 64 bytes; blocks of 4 MiB or more are aligned to 2
// MiB, with a request for huge pages. The allocator is thread-safe. Free blocks are poisoned for
// AddressSanitizer.
namespace host_allocator {

inline constexpr std::size_t kAlignment = 64;

// Never returns null, even for zero bytes. Throws OutOfMemoryError, or UsageError if no machine
// could have so much memory.
[[nodiscard]] std::byte* allocate(Bytes size);
void free(std::byte* block, Bytes size);  // `size` as passed to allocate()
[[nodiscard]] AllocatorStats stats();
void reset_peak();      // sets peak to current
void release_cached();  // returns the free blocks to the system
// The size to which a request is rounded up.
[[nodiscard]] Bytes class_size(Bytes size);

}  // namespace host_allocator

}  // namespace ringsmith
