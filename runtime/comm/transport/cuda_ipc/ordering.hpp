// The places where one processor's stores become another's loads, by name.
//
// Each pair is a release at one end and an acquire at the other, at system scope: device scope
// stops at the edge of a GPU, and volatile orders nothing at all. A test builds the kernels with
// RINGSMITH_WEAKEN naming one end, which is then relaxed, and expects the race to be reported; if
// it is not, that end was not needed or the test is blind.
#pragma once

#include <cuda/atomic>

namespace ringsmith::comm::cuda_ipc {

enum class End {
  none,
  tail_release,     // "the slot is filled":  the sender's stores to the slot ...
  tail_acquire,     // ... are seen by the receiver's loads of it
  head_release,     // "the slot is free":  the receiver's loads of the slot ...
  head_acquire,     // ... come before the sender's next stores to it
  arrival_release,  // "I am here":  what this rank has written and read so far ...
  arrival_acquire,  // ... comes before what the peers do after the meeting
};

#ifndef RINGSMITH_WEAKEN
#define RINGSMITH_WEAKEN none
#endif

constexpr cuda::memory_order order_of(End end) {
  if (end == End::RINGSMITH_WEAKEN) return cuda::memory_order_relaxed;
  const bool acquires =
      end == End::tail_acquire || end == End::head_acquire || end == End::arrival_acquire;
  return acquires ? cuda::memory_order_acquire : cuda::memory_order_release;
}

template <class T>
using SystemAtomic = cuda::atomic_ref<T, cuda::thread_scope_system>;

}  // namespace ringsmith::comm::cuda_ipc
