// What every kernel of engine B begins with and waits by: from a call to a launch of the right type
// and size, and polling with an end to it.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/launch.hpp"
#include "runtime/comm/device/calls.hpp"

namespace ringsmith::comm::cuda_ipc {

// f(TypeTag<T>) with the element type; bool travels as bytes.
template <class F>
void with_type(DType dtype, F&& f) {
#ifdef RINGSMITH_WEAKEN  // one type is enough to see an order
  if (dtype == DType::f32) return f(TypeTag<float>{});
  throw UsageError("this program has f32 only");
#else
  visit_dtype(dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (std::is_same_v<T, bool>)
      f(TypeTag<std::uint8_t>{});
    else
      f(TypeTag<T>{});
  });
#endif
}

template <class Call>
dim3 grid_of(const Call& call) {
  return dim3(static_cast<unsigned>(call.blocks));
}
template <class Call>
dim3 block_of(const Call& call) {
  return dim3(static_cast<unsigned>(call.shape.threads));
}

// Who waits for what: everything that a report needs and a poll does not.
struct Waiter {
  Patience patience;
  Station* station;  // of this rank
  int rank;
};

constexpr std::uint64_t kPollsPerLook = 64;  // at `stop`, which lies in the host's memory

// The first block of the rank to get here says what it waited for; all are told to stop.
__device__ inline void report(const Waiter& w, Awaited awaited, int peer, std::int64_t step,
                              std::uint64_t have, std::uint64_t want) {
  Trouble& t = *w.patience.trouble;
  std::uint64_t nobody = 0;
  if (cuda::atomic_ref<std::uint64_t, cuda::thread_scope_device>(w.station->claimed.value)
          .compare_exchange_strong(nobody, 1, cuda::memory_order_relaxed)) {
    t.awaited = awaited;
    t.rank = w.rank;
    t.peer = peer;
    t.block = blockIdx.x;
    t.operation = w.patience.operation;
    t.step = step;
    t.have = have;
    t.want = want;
    SystemAtomic<std::uint32_t>(t.written).store(1, order_of(End::report_release));
  }
  SystemAtomic<std::uint32_t>(t.stop).store(1, cuda::memory_order_relaxed);
}

// Polls until ready(), which loads what it waits for in the order that it needs. False, after a
// report, when the limit is reached or somebody else has given up; have() is then asked for what
// there was.
template <class Ready, class Have>
__device__ bool wait_until(const Waiter& w, Awaited awaited, int peer, std::int64_t step,
                           std::uint64_t want, Ready ready, Have have) {
  for (std::uint64_t polls = 1; !ready(); ++polls) {
    if (polls % kPollsPerLook != 0 && polls < w.patience.limit) continue;
    const bool stop =
        SystemAtomic<std::uint32_t>(w.patience.trouble->stop).load(cuda::memory_order_relaxed) != 0;
    if (!stop && polls < w.patience.limit) continue;
    report(w, awaited, peer, step, have(), want);
    return false;
  }
  return true;
}

}  // namespace ringsmith::comm::cuda_ipc
