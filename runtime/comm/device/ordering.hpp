// The places where one processor's stores become another's loads, by name.
//
// Each pair is a release at one end and an acquire at the other, at system scope: device scope
// stops at the edge of a GPU, and volatile orders nothing at all. A test weakens each end in turn
// to relaxed and expects the detector to report the race (tests/comm/cuda/ordering_test.cpp); were
// it silent, that end would not be needed, or the test be blind.
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
  report_release,   // "a block has given up":  what it noted about its wait ...
  report_acquire,   // ... is what the host reads
};

constexpr bool acquires(End end) {
  return end == End::tail_acquire || end == End::head_acquire || end == End::arrival_acquire ||
         end == End::report_acquire;
}
constexpr cuda::memory_order strong_order(End end) {
  return acquires(end) ? cuda::memory_order_acquire : cuda::memory_order_release;
}

#ifdef RINGSMITH_WEAKEN  // that test's program
inline End weakened = End::none;
inline cuda::memory_order order_of(End end) {
  return end == weakened ? cuda::memory_order_relaxed : strong_order(end);
}
#else
constexpr cuda::memory_order order_of(End end) { return strong_order(end); }
#endif

template <class T>
using SystemAtomic = cuda::atomic_ref<T, cuda::thread_scope_system>;

}  // namespace ringsmith::comm::cuda_ipc
