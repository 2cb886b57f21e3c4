// Pinned host memory: the pages stay where they are, so that a device copies to and from them by
// itself while the host goes on. Pinning is slow; blocks are kept and used again.
#pragma once

#include <cstddef>

#include "runtime/base/allocator.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith {

class PinnedBlock {
 public:
  explicit PinnedBlock(Bytes size);  // uninitialised; CudaError if it cannot be had
  ~PinnedBlock();                    // kept for the next, after what release_after() named
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  // The block stays in use until `stream` has done all that it holds now.
  void release_after(const Stream& stream) { busy_ = Event::record(stream); }

 private:
  std::byte* data_;
  std::size_t class_;  // of its size
  Event busy_;
};

namespace pinned_allocator {
[[nodiscard]] AllocatorStats stats();  // current and peak in whole size classes
void release_cached();                 // the free blocks that no device uses any more
}  // namespace pinned_allocator

}  // namespace ringsmith
