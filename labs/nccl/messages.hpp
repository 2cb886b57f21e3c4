// Messages between two ranks: the mailboxes in the memory that each rank's peers write to, and the
// launches of the kernels in messages.cu (all kernels of the library except the rings).
//
//     [ Station ][ slots of ring 0 ][ mailboxes ][ mail slots ]      runtime/comm/device/layout.hpp
//
//        sender s                                   receiver r
//      polls box[r].head  <--- credit --------------  box[s] of r: taken
//      box[r] of s: sent  ---- slots of (s, r), tail ---> polls box[s].tail
//
// A mailbox has the counters, slots and hand-off of a channel of the ring, but connects any two
// ranks. Each ordered pair of ranks has its own mailbox, and a kernel has a block for each of its
// messages. So all messages are in flight simultaneously, and no order of the calls can deadlock.
#pragma once

#include <algorithm>

#include "runtime/comm/device/calls.hpp"

namespace ringsmith::nccl {

namespace cuda_ipc = comm::cuda_ipc;

constexpr std::uint64_t kMailSlots = 4;
constexpr std::size_t mail_slot_bytes(const cuda_ipc::Shape& shape) {
  return std::min(shape.slot_bytes, std::size_t{128} << 10);
}

// Bytes from the start of a rank's memory.
constexpr std::size_t ring_slots_at(int world) {
  return cuda_ipc::round_up(cuda_ipc::station_bytes(world), 128);
}
constexpr std::size_t mailboxes_at(int world, const cuda_ipc::Shape& shape) {
  return cuda_ipc::round_up(ring_slots_at(world) + cuda_ipc::ring_slots_bytes(shape), 128);
}
constexpr std::size_t mail_slots_at(int sender, int world, const cuda_ipc::Shape& shape) {
  return mailboxes_at(world, shape) + static_cast<std::size_t>(world) * sizeof(cuda_ipc::Channel) +
         static_cast<std::size_t>(sender) * kMailSlots * mail_slot_bytes(shape);
}
constexpr std::size_t memory_bytes(int world, const cuda_ipc::Shape& shape) {
  return mail_slots_at(world, world, shape);
}

struct Message {
  std::byte* data;
  std::uint64_t bytes;
  std::int32_t peer;
  bool sends;
};

// At most one message to and one from each other rank.
constexpr int kMostMessages = 2 * (cuda_ipc::kMostRanks - 1);

struct MessagesCall {
  int world, rank;
  int count;  // number of messages
  cuda_ipc::Shape shape;
  cuda_ipc::KernelTimeout timeout;
  std::byte* memory[cuda_ipc::kMostRanks];
  Message messages[kMostMessages];
};
static_assert(sizeof(MessagesCall) <= 4096, "the parameters of a kernel");

// Launches on the current device. Throws CudaError if the launch fails.
void launch_messages(const MessagesCall& call, CUstream_st* stream);
// Loads this file's kernels on the current device, because a first launch may wait until the device
// is idle.
void load_messages();
// data[i] /= by, rounded towards zero, for integers (other_sign: as in RingCall); by > 0.
void launch_divide(DType dtype, bool other_sign, std::byte* data, std::uint64_t count, int by,
                   CUstream_st* stream);
// to[i] = from[i] times the factor: the result of a ring of one rank.
void launch_multiply(DType dtype, bool other_sign, std::byte* to, const std::byte* from,
                     std::uint64_t count, const kernels::Arithmetic& arithmetic,
                     const cuda_ipc::Factor& factor, CUstream_st* stream);

}  // namespace ringsmith::nccl
