// Device memory that peers can access: the record that each rank publishes about its own memory
// (Catalogue), the other ranks' access to it (DevicePeers), and its allocator (DeviceArena).
//
// Catalogues are in host memory that all ranks of the host map; each is written by its owner only.
// Because ranks may be different processes, they send each other locations as pairs of numbers
// (region, offset). A region is one allocation. Its IPC handle names the driver's block that
// contains it, so the catalogue also states the region's offset in that block.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/comm/device/whereabouts.hpp"
#include "runtime/comm/schedule/schedule.hpp"
#include "runtime/comm/transport/segments.hpp"
#include "runtime/comm/transport/shm/segment.hpp"
#include "runtime/comm/types/buffer.hpp"
#include "runtime/device/stream.hpp"

struct CUevent_st;

namespace ringsmith::comm::cuda_ipc {

constexpr std::size_t kHandleBytes = 64;  // CUDA_IPC_HANDLE_SIZE
constexpr std::uint32_t kMostRegions = 1024;

// Indices of the stream engine's events: kMoveEvents for moves, used in turn, and three others.
constexpr std::uint32_t kMoveEvents = 16;
constexpr std::uint32_t kReadyEvent = kMoveEvents;        // this rank's buffers are ready
constexpr std::uint32_t kMessageEvent = kMoveEvents + 1;  // send: a slot is filled
constexpr std::uint32_t kCreditEvent = kMoveEvents + 2;   // recv: a slot is emptied
constexpr std::uint32_t kEvents = kMoveEvents + 3;

using Location = std::uint64_t;
constexpr int kOffsetBits = 40;
constexpr Location location_of(std::uint32_t region, std::uint64_t offset) {
  return Location{region} << kOffsetBits | offset;
}
constexpr std::uint32_t region_of(Location location) {
  return static_cast<std::uint32_t>(location >> kOffsetBits);
}
constexpr std::uint64_t offset_of(Location location) {
  return location & ((Location{1} << kOffsetBits) - 1);
}

struct Handle {
  std::byte bytes[kHandleBytes];
};

struct Region {
  Handle handle;           // for other processes
  std::uint64_t in_block;  // bytes from the base of the block that the handle names
  std::byte* pointer;      // for ranks of the owner's process
  std::uint64_t size;      // bytes
};

struct SharedEvent {
  Handle handle;
  void* pointer;
};

// The owner writes a field before it notifies its readers (through the bootstrap, an agreement
// barrier, a progress counter or a message). The notification orders accesses to plain fields.
struct Catalogue {
  Region regions[kMostRegions];
  SharedEvent events[kEvents];
  Location ping;                           // ping.hpp
  Location station;                        // the kernel engine
  Location slots[2];                       // of its rings, once a call has used them
  Location staging_input, staging_output;  // the stream engine, once it has staged a call
  std::atomic<std::uint32_t> closed{0};    // 1: the owner has closed its peers' memory and events
};

// One rank's access to the device memory and the events of all ranks.
//
//     Location of rank r  ->  r == me                 my region + offset
//                             r in my process         its pointer + offset, and peer access
//                             r in another process    cudaIpcOpenMemHandle (once) + offset
//
// Regions stay open until close(). A region must be closed by all peers before its owner frees it.
// Therefore every rank closes its peers' regions, notifies the peers, waits for their notices, and
// then frees its own regions.
class DevicePeers {
 public:
  // Collective. Creates this rank's events. The caller must set `ping` and, for the kernel engine,
  // `station` in the catalogue before it calls meet().
  DevicePeers(Bootstrap& bootstrap, Segments& segments, Device device,
              const std::vector<Whereabouts>& ranks);
  ~DevicePeers();  // closes; destroys this rank's events

  // Collective. Once it has returned, this rank may read every catalogue.
  void meet(Bootstrap& bootstrap);
  // Enables access to the devices of other ranks of this process. Throws CudaError if that fails.
  void enable_peer_access() const;

  [[nodiscard]] const std::shared_ptr<CommMemory>& catalogue_memory() const { return memory_; }
  [[nodiscard]] Catalogue& mine() const { return *catalogues_[at(segments_.rank())]; }
  [[nodiscard]] const Catalogue& of(int rank) const { return *catalogues_[at(rank)]; }

  // Only the thread that runs the group's operations may call address(); any thread may call
  // event().
  [[nodiscard]] std::byte* address(int rank, Location location);
  [[nodiscard]] CUevent_st* event(int rank, std::uint32_t index);

  // Called when the group has failed; any thread may call it. Releases streams that wait for events
  // of other processes by recording those events again. This works with vgpu; how a real driver
  // treats an event of a dead process is not documented.
  void release_waiters() noexcept;
  // Returns a rank whose stream has not reached the rank's last collective, or -1. May be called
  // from any thread.
  [[nodiscard]] int find_laggard() noexcept;

  // Closes all memory and events of other ranks, and notifies those ranks. The device must be idle.
  void close() noexcept;
  // Blocks until all peers have closed their access or are gone. Returns false after `most`.
  [[nodiscard]] bool wait_for_others_to_close(std::chrono::milliseconds most) const;
  // Called instead of close() if the device may never become idle. Releases nothing.
  void abandon() noexcept;

 private:
  [[nodiscard]] bool in_my_process(int rank) const;

  Segments& segments_;
  Device device_;
  std::vector<Whereabouts> ranks_;
  std::shared_ptr<CommMemory> memory_;  // of this rank's catalogue
  std::vector<Catalogue*> catalogues_;
  std::vector<CUevent_st*> own_events_;
  std::map<std::pair<int, std::uint32_t>, void*> opened_regions_;  // by (rank, region): block bases
  std::mutex mutex_;  // guards opened_events_, which the monitor's thread uses, too
  std::map<std::pair<int, std::uint32_t>, CUevent_st*> opened_events_;
  bool closed_ = false;
};

// The allocator of a rank's communication memory on its device. Allocates by first fit from regions
// that cudaMalloc returned, and lists them in the rank's catalogue, so that peers can open them.
//
// A freed block may still be in use by the group's collectives and by work on the freeing thread's
// current stream. The stream of the next allocation waits for both. Regions are kept until the
// arena is destroyed, because peers have them open.
class DeviceArena : public std::enable_shared_from_this<DeviceArena> {
 public:
  // `communication` runs the group's collectives. `keep` owns this rank's `catalogue`.
  DeviceArena(Stream communication, Catalogue& catalogue, std::shared_ptr<CommMemory> keep);
  ~DeviceArena();

  // Returns 256-byte aligned memory that the calling thread's current stream fills with zeros.
  // Throws CudaError if the device is out of memory, CommError if there are too many regions or the
  // size overflows when rounded up.
  [[nodiscard]] std::shared_ptr<CommMemory> allocate(Bytes size);
  // Returns the location of this memory, or nullopt if it is not inside one region.
  [[nodiscard]] std::optional<Location> locate(const std::byte* data, Bytes size) const;

  // Makes the destructor free nothing, because peers may still use the memory.
  void abandon() { abandoned_ = true; }

 private:
  class ArenaBlock;
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
  std::vector<ringsmith::Event> last_uses_;  // of freed blocks
  bool abandoned_ = false;
};

}  // namespace ringsmith::comm::cuda_ipc
