// The allocator of one rank's communication memory on its device: regions of cudaMalloc, listed in
// the rank's catalogue so that peers can open them, cut up first fit.
//
// A freed block may still be in use: by the group's collectives, and by what the freeing thread's
// current stream holds. Whoever gets the memory next waits for both, on its stream. Regions are
// kept until the arena ends: peers have them open.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "runtime/comm/device/catalogue.hpp"
#include "runtime/comm/process_group.hpp"
#include "runtime/comm/transport/free_ranges.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith::comm::cuda_ipc {

class DeviceArena : public std::enable_shared_from_this<DeviceArena> {
 public:
  // `communication` runs the group's collectives. The catalogue is this rank's; keep holds it.
  DeviceArena(Stream communication, Catalogue& catalogue, std::shared_ptr<CommMemory> keep);
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;
  ~DeviceArena();

  // Zero-filled (by the calling thread's current stream), 256-byte aligned. CudaError if the device
  // has no memory left.
  [[nodiscard]] std::shared_ptr<CommMemory> allocate(Bytes size);
  // Where this memory is, if all of it is managed here.
  [[nodiscard]] std::optional<Location> locate(const std::byte* data, Bytes size) const;

  // The group ends badly: peers may still use the memory, so it is left to the end of the process.
  void abandon() { abandoned_ = true; }

 private:
  class Block;
  struct Stretch {
    std::byte* base;
    std::size_t size;
    FreeRanges free;
  };
  void free(std::uint32_t region, std::size_t offset, std::size_t size);
  std::uint32_t add_region(std::size_t size);

  Stream communication_;
  Catalogue& catalogue_;
  std::shared_ptr<CommMemory> keep_;
  mutable std::mutex mutex_;
  std::vector<Stretch> stretches_;
  std::vector<Event> last_uses_;  // of freed blocks
  bool abandoned_ = false;
};

}  // namespace ringsmith::comm::cuda_ipc
