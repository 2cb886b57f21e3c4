// Bytes between the CPU and devices, and between devices; and the pinned memory they pass through.
//
//   cpu -> cuda    host copies into pinned memory, the device's current stream takes it from there;
//                  the source may be overwritten at once
//   pinned -> cuda the stream takes it from where it lies: the source must stay what it is until
//                  the stream is done
//   cuda -> cpu    the same the other way, and the host waits for it
//   cuda -> cuda   on the source's current stream: after everything queued on the target's, which
//                  then goes on after the copy. The host does not wait
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/base/allocator.hpp"
#include "runtime/base/units.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith {

// The ranges must not overlap, and must be allocated on the devices that are named.
void transfer(std::byte* to, Device to_device, const std::byte* from, Device from_device,
              Bytes size);

// Lets kernels and copies on `device` use `peer`'s memory directly, once for all. False if the
// hardware has no way between them.
bool enable_peer_access(Device device, Device peer);

// Pinned host memory: the pages stay where they are, so that a device copies to and from them by
// itself while the host goes on. Pinning is slow; blocks are kept and used again.
class PinnedBlock {
 public:
  explicit PinnedBlock(Bytes size);  // uninitialised; CudaError if it cannot be had
  ~PinnedBlock();                    // kept for the next, after what release_after() named
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  // The block stays in use until `stream` has done all that it holds now.
  void release_after(const Stream& stream) { busy_.push_back(Event::record(stream)); }
  // The living block that holds all these bytes; null if there is none.
  [[nodiscard]] static PinnedBlock* around(const std::byte* data, Bytes size);

 private:
  std::byte* data_;
  std::size_t class_;  // of its size
  std::vector<Event> busy_;
};

// A few bytes on their way from a device to the host, which goes on: a loss, say, that is read when
// the step's backward is queued.
class Fetch {
 public:
  // After what the device's current stream holds; `from` may be freed at once, as all memory of
  // that stream.
  Fetch(const std::byte* from, Device device, Bytes size);
  // Waits for these bytes alone, not for what was queued behind them.
  [[nodiscard]] const std::byte* wait() const;

 private:
  std::unique_ptr<PinnedBlock> block_;
  Event done_;
};

namespace pinned_allocator {
[[nodiscard]] AllocatorStats stats();  // current and peak in whole size classes
void release_cached();                 // the free blocks that no device uses any more
}  // namespace pinned_allocator

}  // namespace ringsmith
