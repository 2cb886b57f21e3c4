// What one rank publishes about its device for the others: in host memory that all ranks of the
// host map, written by its owner, read by everybody.
//
// A place in device memory travels between ranks as a number, (region, offset): what a pointer
// would be if address spaces were shared. A region is one allocation. Its handle names the whole
// block of memory that the driver put it in, so the region's place in that block travels with it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ringsmith::comm::cuda_ipc {

constexpr std::size_t kHandleBytes = 64;  // CUDA_IPC_HANDLE_SIZE
constexpr std::uint32_t kMostRegions = 1024;

// Events of engine A, by index: one for each of the last moves, and three of their own.
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
  std::byte* pointer;      // for other ranks of this process
  std::uint64_t size;      // bytes
};

struct SharedEvent {
  Handle handle;
  void* pointer;
};

// Filled by its owner before the others are told that there is something (roll call, progress
// counter), which is what orders the plain fields.
struct Catalogue {
  Region regions[kMostRegions];
  SharedEvent events[kEvents];
  Location station;                        // engine B
  Location staging_input, staging_output;  // engine A, once it has staged something
  std::atomic<std::uint32_t> closed{0};    // has let go of everything that belongs to others
};

}  // namespace ringsmith::comm::cuda_ipc
