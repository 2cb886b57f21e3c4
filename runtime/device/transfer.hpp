// Copies between the CPU and devices and between devices, and the pinned memory that these copies
// use.
//
//   cpu -> cuda    the host copies into pinned memory, and the device's current stream copies from
//                  there. The source may be overwritten immediately
//   pinned -> cuda the stream copies directly from the source, which must not change until the
//                  stream is done
//   cuda -> cpu    also through pinned memory. Blocks the host until the bytes have arrived
//   cuda -> cuda   on the source's current stream, after everything queued on the target's. Later
//                  work on the target's stream waits for the copy. Does not block the host
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/base/allocator.hpp"
#include "runtime/base/units.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith {

// The ranges must not overlap, and must be allocated on the named devices.
void transfer(std::byte* to, Device to_device, const std::byte* from, Device from_device,
              Bytes size);

// Lets kernels and copies on `device` access `peer`'s memory directly from now on. Returns false if
// the hardware does not support it.
bool enable_peer_access(Device device, Device peer);

// Pinned host memory: a device can copy to and from it while the host continues. Pinning is slow,
// so blocks are kept and reused.
class PinnedBlock {
 public:
  explicit PinnedBlock(Bytes size);  // uninitialised; CudaError, or UsageError if too large
  ~PinnedBlock();                    // the block is reused once release_after()'s work is done
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  // Keeps the block in use until `stream` has finished all work queued on it so far.
  void release_after(const Stream& stream) { busy_.push_back(Event::record(stream)); }
  // Returns the live block that contains all these bytes, or null.
  [[nodiscard]] static PinnedBlock* around(const std::byte* data, Bytes size);

 private:
  std::byte* data_;
  std::size_t class_;
  std::vector<Event> busy_;
};

// A few bytes that are copied from a device while the host continues, e.g. a loss that is read
// after the step's backward has been queued.
class Fetch {
 public:
  // Queues the copy on the device's current stream. `from` may be freed immediately, like all
  // memory of that stream.
  Fetch(const std::byte* from, Device device, Bytes size);
  // Blocks until these bytes have arrived, but does not wait for work queued later.
  [[nodiscard]] const std::byte* wait() const;

 private:
  std::unique_ptr<PinnedBlock> block_;
  Event done_;
};

namespace pinned_allocator {
[[nodiscard]] AllocatorStats stats();  // current and peak in whole size classes
void release_cached();                 // per size class: frees cached blocks up to the first in use
}  // namespace pinned_allocator

}  // namespace ringsmith
