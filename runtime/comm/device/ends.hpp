// The places where one processor's stores become visible to another's loads.
//
// Each pair is a release at one end and an acquire at the other, at system scope, because device
// scope covers only one GPU and volatile orders nothing. A test weakens each end in turn and
// expects the detector to report the race (tests/comm/cuda/ordering_test.cpp). A weak end is
// relaxed; the stores of tail and head, which share one fence, then come before it.
#pragma once

#include <cuda/atomic>

namespace ringsmith::comm::cuda_ipc {

enum class End {
  none,
  tail_release,     // "the slot is filled":  the sender's stores to the slot ...
  tail_acquire,     // ... are seen by the receiver's loads of it
  head_release,     // "the slot is free":  the receiver's loads of the slot ...
  head_acquire,     // ... happen before the sender's next stores to it
  arrival_release,  // "I am here":  this rank's reads and writes so far ...
  arrival_acquire,  // ... happen before the peers' accesses after the meeting
  report_release,   // "a block has given up":  its notes about its wait ...
  report_acquire,   // ... are visible to the host
};

constexpr bool acquires(End end) {
  return end == End::tail_acquire || end == End::head_acquire || end == End::arrival_acquire ||
         end == End::report_acquire;
}
constexpr cuda::memory_order strong_order(End end) {
  return acquires(end) ? cuda::memory_order_acquire : cuda::memory_order_release;
}

#ifdef RINGSMITH_WEAKEN  // defined only for the program of that test
inline End weakened = End::none;
inline bool is_weak(End end) { return end == weakened; }
inline cuda::memory_order order_of(End end) {
  return is_weak(end) ? cuda::memory_order_relaxed : strong_order(end);
}
#else
constexpr bool is_weak(End) { return false; }
constexpr cuda::memory_order order_of(End end) { return strong_order(end); }
#endif

template <class T>
using SystemAtomic = cuda::atomic_ref<T, cuda::thread_scope_system>;

}  // namespace ringsmith::comm::cuda_ipc
