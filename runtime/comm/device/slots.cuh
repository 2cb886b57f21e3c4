// Executes the steps of a ring with slots. One block of one rank, between its two neighbours:
//
//     previous rank                    this block                         next rank
//                   ==slot==> recv ...  own input  ... send ==slot==>
//
// All threads of a block store a message together, so each end of a hand-off consists of a barrier
// of the block and one atomic access by one thread:
//
//   a sender    has read in `head` (acquire) that the slot's last message was taken, then barrier:
//               its stores cannot precede the receiver's loads of that message;
//               stores the message; barrier; `tail` (release): readers of the new tail see it all.
//   a receiver  has read in `tail` (acquire) that the message is there, then barrier: every thread
//               of the block sees all of it;
//               loads the message; barrier; `head` (release): the slot is free only after the
//               loads.
//
// This works because order at system scope is transitive through the barrier.
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
    for (std::uint64_t at = 0; at < part.count; at += per_slot()) {
      bool granted = true;
      if (threadIdx.x == 0) granted = (!receives || await_message()) && (!sends || await_room());
      alive_ = __syncthreads_and(granted) != 0;
      if (!alive_) return;
      Flow f{};
      if ((step.verb & kAddsOwn) != 0)
        f.own = in_buffer(call_.input, call_.input_begin, part.begin + at);
      if ((step.verb & kKeeps) != 0)
        f.keep = in_buffer(call_.output, call_.output_begin, part.begin + at);
      if (receives) f.message = slot_of(call_.mine, taken_);
      if (sends) f.onward = slot_of(call_.next, sent_);
      f.count = min(per_slot(), part.count - at);
      flow<T>(f, arithmetic_);
      __syncthreads();
      if (receives) return_slot();
      if (sends) post_message();
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
  // ---- the four ends of the two hand-offs; every thread counts taken_ and sent_ ----
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
  __device__ void return_slot() {
    const auto order = order_of(End::head_release);
    ++taken_;
    if (threadIdx.x == 0) SystemAtomic<std::uint64_t>(previous_.head.value).store(taken_, order);
  }
  __device__ void post_message() {
    const auto order = order_of(End::tail_release);
    ++sent_;
    if (threadIdx.x == 0) SystemAtomic<std::uint64_t>(next_.tail.value).store(sent_, order);
  }

  // ---- addresses and ranges ----
  [[nodiscard]] __device__ Channel& channel_of(std::byte* station) const {
    return reinterpret_cast<Station*>(station)->channels[call_.ring][blockIdx.x];
  }
  [[nodiscard]] __device__ std::byte* slot_of(std::byte* station, std::uint64_t message) const {
    return station + slots_at(call_.ring, static_cast<int>(blockIdx.x), call_.world, call_.shape) +
           message % kRingSlots * call_.shape.slot_bytes;
  }
  template <class Byte>
  [[nodiscard]] __device__ static Byte* in_buffer(Byte* buffer, std::uint64_t begin,
                                                  std::uint64_t element) {
    return buffer + (element - begin) * sizeof(T);
  }
  [[nodiscard]] __device__ std::uint64_t per_slot() const {
    return call_.shape.slot_bytes / sizeof(T);
  }
  [[nodiscard]] __device__ std::uint64_t piece() const { return kSlotsPerPiece * per_slot(); }

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
  Channel &mine_, &previous_, &next_;
  std::uint64_t sent_, taken_;
  int step_ = 0;
  bool alive_ = true;
};

}  // namespace ringsmith::comm::cuda_ipc
