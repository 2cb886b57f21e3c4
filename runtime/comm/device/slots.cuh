// Executes the steps of a ring with slots. One block of one rank, between its two neighbours:
//
//     previous rank                    this block                         next rank
//                   ==slot==> recv ...  own input  ... send ==slot==>
//
// In a block, every warp copies except the last, whose only thread does the hand-off:
//
//     copying warps    wait, copy message 0 | wait, copy message 1 | wait, copy message 2 |
//                                           barrier                barrier                barrier
//     last warp                             | fence, tail, head    | fence, tail, head    | ...
//
// So a message's fence, which waits until all its stores have arrived, overlaps with the next copy.
// Many threads access a message, so at each end of a hand-off one thread acts for the others:
//
//   a sender    in each warp, lane 0 has read in `head` (acquire) that the slot's last message was
//               taken, then __syncwarp: the warp's stores cannot precede the receiver's loads of
//               it; the warps store the message; barrier; fence; `tail`: its readers see all of it.
//   a receiver  in each warp, lane 0 has read in `tail` (acquire) that the message is there, then
//               __syncwarp: the warp sees all of it;
//               the warps load the message; barrier; fence; `head`: it follows the loads.
//
// This works because order at system scope is transitive through the barriers. One fence releases
// both counters; the stores after it are relaxed. `tail` is stored first: the receiver always waits
// for `tail`, the sender for `head` only if all slots are full.
//
// The second half of an all_reduce only moves complete elements. If the ranks' outputs are shared,
// a block stores them directly in the next rank's output, so no rank copies them out of a slot. The
// messages are counted as before. The next rank no longer needs the elements that are overwritten:
// the complete ones contain its own contribution, so they are stored after its loads.
#pragma once

#include "runtime/comm/device/kernel.cuh"

namespace ringsmith::comm::cuda_ipc {

template <class T>
class Slots {
 public:
  __device__ explicit Slots(const RingCall& call)
      : call_(call),
        arithmetic_(factored<T>(call.arithmetic, call.factor)),
        waiter_{call.timeout, reinterpret_cast<Station*>(call.mine), call.rank},
        copying_(copying_threads(blockDim.x)),
        mine_(channel_of(call.mine)),
        previous_(channel_of(call.previous)),
        next_(channel_of(call.next)),
        sent_(mine_.sent),
        taken_(mine_.taken) {}

  // Each pass moves one piece of this channel's share of every chunk around the ring.
  [[nodiscard]] __device__ std::uint64_t passes() const {
    std::uint64_t longest = 0;
    for (int q = 0; q < call_.world; ++q) longest = max(longest, share_of(q).count);
    return (longest + piece() - 1) / piece();
  }
  // Returns false once a wait has failed.
  [[nodiscard]] __device__ bool alive() const { return alive_; }

  __device__ void take(RingStep step, int s, std::uint64_t pass) {
    step_ = s;
    const bool receives = (step.verb & kReceives) != 0, sends = (step.verb & kSends) != 0;
    const Range part = part_of(step.chunk, pass);
    for (std::uint64_t at = 0; at < part.count; at += per_message()) {
      bool granted = true;
      if (threadIdx.x < copying_) {
        granted = await(receives, sends);
        if (granted) {
          const std::uint64_t count = min(per_message(), part.count - at);
          flow<T>(flow_of(step.verb, part.begin + at, count), arithmetic_, copying_);
        }
      }
      alive_ = __syncthreads_and(granted) != 0;
      if (!alive_) return;
      hand_over(receives, sends);
    }
  }

  // Saves the counters for the next kernel. Must be called after the last pass.
  __device__ void finish() {
    __syncthreads();  // every thread has read the old values
    if (threadIdx.x != 0) return;
    mine_.sent = sent_;
    mine_.taken = taken_;
  }

 private:
  [[nodiscard]] __device__ Flow flow_of(Verb verb, std::uint64_t element,
                                        std::uint64_t count) const {
    const bool complete = (verb & kKeeps) != 0, sends = (verb & kSends) != 0;
    const bool receives = (verb & kReceives) != 0, adds = (verb & kAddsOwn) != 0;
    const bool lands = call_.next_output != nullptr && receives && !adds;  // in this rank's output
    std::byte* const output =
        complete ? in_buffer(call_.output, call_.output_begin, element) : nullptr;
    Flow f{};
    f.count = static_cast<unsigned>(count);
    if (adds) f.own = in_buffer(call_.input, call_.input_begin, element);
    if (receives) f.message = lands ? output : slot_of(call_.slots, taken_);
    if (!lands) f.keep = output;
    if (sends)
      f.onward = complete && call_.next_output != nullptr
                     ? in_buffer(call_.next_output, call_.output_begin, element)
                     : slot_of(call_.next_slots, sent_);
    return f;
  }

  // ---- the four ends of the two hand-offs; every thread counts taken_ and sent_ ----
  // Called by all copying threads of a warp.
  __device__ bool await(bool receives, bool sends) const {
    bool granted = true;
    if (threadIdx.x % kWarp == 0)
      granted = (!receives || await_message()) && (!sends || await_room());
    const unsigned lanes = min(copying_ - threadIdx.x / kWarp * kWarp, unsigned{kWarp});
    const unsigned mask = ~0U >> (kWarp - lanes);
    granted = __all_sync(mask, granted) != 0;
    __syncwarp(mask);  // a vote orders no memory
    return granted;
  }
  __device__ bool await_message() const {
    const SystemAtomic<std::uint64_t> tail(mine_.tail.value);
    const auto order = order_of(End::tail_acquire);
    return wait_until(
        waiter_, Awaited::tail, call_.previous_rank, step_, taken_ + 1,
        [&] { return tail.load(order) > taken_; },
        [&] { return tail.load(cuda::memory_order_relaxed); });
  }
  __device__ bool await_room() const {
    const SystemAtomic<std::uint64_t> head(mine_.head.value);
    const auto order = order_of(End::head_acquire);
    return wait_until(
        waiter_, Awaited::head, call_.next_rank, step_, sent_ + 1 - kRingSlots,
        [&] { return sent_ < head.load(order) + kRingSlots; },
        [&] { return head.load(cuda::memory_order_relaxed); });
  }
  __device__ void hand_over(bool receives, bool sends) {
    sent_ += sends ? 1 : 0;
    taken_ += receives ? 1 : 0;
    if (threadIdx.x != blockDim.x - 1) return;
    const auto post = [&](bool weak) {
      if (sends && is_weak(End::tail_release) == weak) set(next_.tail, sent_);
      if (receives && is_weak(End::head_release) == weak) set(previous_.head, taken_);
    };
    post(true);  // posts nothing, unless a test weakens an end of a hand-off
    cuda::atomic_thread_fence(cuda::memory_order_acq_rel, cuda::thread_scope_system);
    post(false);
  }
  static __device__ void set(Counter& counter, std::uint64_t value) {
    SystemAtomic<std::uint64_t>(counter.value).store(value, cuda::memory_order_relaxed);
  }

  // ---- addresses and ranges ----
  [[nodiscard]] __device__ Channel& channel_of(std::byte* station) const {
    return reinterpret_cast<Station*>(station)->channels[call_.ring][blockIdx.x];
  }
  [[nodiscard]] __device__ std::byte* slot_of(std::byte* slots, std::uint64_t message) const {
    return slots + slots_of_channel_at(static_cast<int>(blockIdx.x), call_.shape) +
           message % kRingSlots * call_.shape.slot_bytes;
  }
  template <class Byte>
  [[nodiscard]] __device__ static Byte* in_buffer(Byte* buffer, std::uint64_t begin,
                                                  std::uint64_t element) {
    return buffer + (element - begin) * sizeof(T);
  }
  [[nodiscard]] __device__ std::uint64_t per_message() const {
    return call_.message_bytes / sizeof(T);
  }
  [[nodiscard]] __device__ std::uint64_t piece() const { return kSlotsPerPiece * per_message(); }

  // Returns this channel's share of a chunk. Shares begin at multiples of 16 bytes from the chunk's
  // start.
  [[nodiscard]] __device__ Range share_of(int chunk) const {
    constexpr std::uint64_t kLanes = 16 / sizeof(T);
    const Range& all = call_.chunks[chunk];
    const std::uint64_t share = round_up((all.count + gridDim.x - 1) / gridDim.x, kLanes);
    const std::uint64_t begin = min(all.count, share * blockIdx.x);
    return {all.begin + begin, min(share, all.count - begin)};
  }
  [[nodiscard]] __device__ Range part_of(int chunk, std::uint64_t pass) const {
    const Range share = share_of(chunk);
    const std::uint64_t begin = min(share.count, pass * piece());
    return {share.begin + begin, min(piece(), share.count - begin)};
  }

  const RingCall& call_;
  Factored arithmetic_;
  Waiter waiter_;
  unsigned copying_;  // threads 0 to copying_ - 1
  Channel &mine_, &previous_, &next_;
  std::uint64_t sent_, taken_;
  int step_ = 0;
  bool alive_ = true;
};

}  // namespace ringsmith::comm::cuda_ipc
