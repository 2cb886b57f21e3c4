// Building blocks of the kernels: dispatch on a call's element type, the call's grid, polling with
// a limit, and one pass over data.
#pragma once

#include <cuda_runtime.h>
#include <type_traits>

#include "kernels/cuda/clock.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/reduce_ops.cuh"
#include "runtime/comm/device/calls.hpp"

namespace ringsmith::comm::cuda_ipc {

using kernels::cuda::load_element;
using kernels::cuda::Pack;
using kernels::cuda::store_element;

// Calls f(TypeTag<T>{}) for the element type T; bool is handled as bytes.
template <class F>
void with_type(DType dtype, F&& f) {
#ifdef RINGSMITH_WEAKEN  // one type is enough to test memory orders
  if (dtype == DType::f32) return f(TypeTag<float>{});
  throw UsageError("this program supports only f32");
#else
  visit_dtype(dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (std::is_same_v<T, bool>)
      f(TypeTag<std::uint8_t>{});
    else
      f(TypeTag<T>{});
  });
#endif
}

// Like with_type(), for integers of the other signedness (RingCall::other_sign).
template <class F>
void with_other_sign([[maybe_unused]] DType dtype, [[maybe_unused]] F&& f) {
#ifndef RINGSMITH_WEAKEN
  switch (dtype) {
    case DType::u8:
      return f(TypeTag<std::int8_t>{});
    case DType::i32:
      return f(TypeTag<std::uint32_t>{});
    case DType::i64:
      return f(TypeTag<std::uint64_t>{});
    default:
      break;
  }
#endif
  throw UsageError("only u8, i32 and i64 have a type of the other signedness");
}

// Call with_type() and with_other_sign() for every type for which there are kernels.
template <class F>
void for_all_types(const F& f) {
#ifdef RINGSMITH_WEAKEN
  with_type(DType::f32, f);
#else
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i32, DType::i64,
                            DType::u8})  // and bool, as u8
    with_type(dtype, f);
#endif
}
template <class F>
void for_other_signs([[maybe_unused]] const F& f) {
#ifndef RINGSMITH_WEAKEN
  for (const DType dtype : {DType::u8, DType::i32, DType::i64}) with_other_sign(dtype, f);
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

// The limits of a kernel's waits, and data for the report of a failed wait.
struct Waiter {
  KernelTimeout timeout;
  Station* station;  // of this rank
  int rank;
};

// `stop` is in host memory, so only every kPollsPerLook-th poll reads it and the clock.
constexpr std::uint64_t kPollsPerLook = 64;

// Tells all blocks of this rank to stop. The first block that calls report() also fills the record.
__device__ inline void report(const Waiter& w, Awaited awaited, int peer, std::int64_t step,
                              std::uint64_t have, std::uint64_t want) {
  KernelReport& t = *w.timeout.report;
  std::uint64_t nobody = 0;
  if (cuda::atomic_ref<std::uint64_t, cuda::thread_scope_device>(w.station->claimed.value)
          .compare_exchange_strong(nobody, 1, cuda::memory_order_relaxed)) {
    t.awaited = awaited;
    t.rank = w.rank;
    t.peer = peer;
    t.block = blockIdx.x;
    t.operation = w.timeout.operation;
    t.step = step;
    t.have = have;
    t.want = want;
    SystemAtomic<std::uint32_t>(t.written).store(1, order_of(End::report_release));
  }
  SystemAtomic<std::uint32_t>(t.stop).store(1, cuda::memory_order_relaxed);
}

// Polls until ready() is true; ready() loads the awaited value with the required memory order.
// Reports and returns false if the wait takes too long or `stop` has been set. have() returns the
// current value, for the report.
template <class Ready, class Have>
__device__ bool wait_until(const Waiter& w, Awaited awaited, int peer, std::int64_t step,
                           std::uint64_t want, Ready ready, Have have) {
  std::uint64_t first_look = 0;
  for (std::uint64_t polls = 1; !ready(); ++polls) {
    if (polls % kPollsPerLook != 0 && polls < w.timeout.limit) continue;
    const std::uint64_t now = kernels::cuda::nanoseconds_on_device();
    if (first_look == 0) first_look = now;
    const bool late = polls >= w.timeout.limit || now - first_look >= w.timeout.nanoseconds;
    const bool stop =
        SystemAtomic<std::uint32_t>(w.timeout.report->stop).load(cuda::memory_order_relaxed) != 0;
    if (!stop && !late) continue;
    report(w, awaited, peer, step, have(), want);
    return false;
  }
  return true;
}

// A rank's action on a chunk in one step of a ring: receive a message, add the rank's own input,
// keep the result in the output, send it on, or several of these.
//
//     kSend                input                  -> next
//     kCopySend            input                  -> output, next
//     kRecvReduceSend      input op message       -> next
//     kRecvReduceCopySend  input op message       -> output, next
//     kRecvReduceCopy      input op message       -> output
//     kRecvCopySend        message                -> output, next
//     kRecv                message                -> output
enum Verb : unsigned {
  kNoVerb = 0,
  kReceives = 1,
  kSends = 2,
  kAddsOwn = 4,
  kKeeps = 8,
  kSend = kAddsOwn | kSends,
  kCopySend = kAddsOwn | kKeeps | kSends,
  kRecvReduceSend = kReceives | kAddsOwn | kSends,
  kRecvReduceCopySend = kReceives | kAddsOwn | kKeeps | kSends,
  kRecvReduceCopy = kReceives | kAddsOwn | kKeeps,
  kRecvCopySend = kReceives | kKeeps | kSends,
  kRecv = kReceives | kKeeps,
};
struct RingStep {
  Verb verb;
  int chunk;
};
constexpr RingStep kNoStep{kNoVerb, 0};

// A block's work on a message: one pass over up to two input arrays and up to two output arrays.
//
//     own, where the caller put it ----.                        .--> keep, the caller's output
//                                       own op message --------<
//     message, in a slot of this rank -'                        '--> onward, a slot of the next
//
// The pass moves 16 bytes at a time if all addresses are aligned for it. Otherwise it moves single
// elements, byte by byte if a buffer is not even aligned to its elements. The result is the same.
struct Flow {
  const std::byte* own;      // null: no own input is added
  const std::byte* message;  // null: no message was received
  std::byte* keep;           // null: the result is not kept
  std::byte* onward;         // null: the result is not sent on
  unsigned count;            // elements: of a message, so fewer than 2^32
};

// Arithmetic together with the value of the call's Factor.
struct Factored : Arithmetic {
  std::uint64_t integer;
};
template <class T>
__device__ Factored factored(const Arithmetic& arithmetic, const Factor& factor) {
  Factored a{arithmetic, factor.integer};
  if (factor.scalar == nullptr) return a;
  const T x = load_element<T>(factor.scalar);
  if constexpr (std::is_integral_v<T>)
    a.integer = static_cast<std::uint64_t>(x);
  else
    a.scale = static_cast<double>(kernels::cuda::Computed<T>::widen(x));
  return a;
}

template <class T>
__device__ T multiplied(T x, const Arithmetic& a) {
  return kernels::cuda::scaled(x, a.scale);
}
template <class T>
__device__ T multiplied(T x, const Factored& a) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::uint64_t>(x) * a.integer);
  else
    return kernels::cuda::scaled(x, a.scale);
}

// own = own times the factor, for each element, if a.scaled. The test is outside of the loop,
// because most calls do not scale.
template <class T, int kLanes, class Arithmetics>
__device__ void scale_pack(Pack<T, kLanes>& own, const Arithmetics& a) {
  if (!a.scaled) return;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) own.at[i] = multiplied(own.at[i], a);
}

// own = own op message, for each element.
template <kernels::Reduction op, class T, int kLanes>
__device__ void combine_pack(Pack<T, kLanes>& own, const Pack<T, kLanes>& message) {
#pragma unroll
  for (int i = 0; i < kLanes; ++i) own.at[i] = kernels::cuda::combine<op>(own.at[i], message.at[i]);
}

// The arrays of a Flow as packs. An absent array has the address of another array.
template <class P>
struct Arrays {
  const P *first, *second;  // to load
  P *keep, *onward;         // to store
  bool keeps, sends;

  __device__ explicit Arrays(const Flow& f)
      : first(reinterpret_cast<const P*>(f.own != nullptr ? f.own : f.message)),
        second(reinterpret_cast<const P*>(f.message != nullptr ? f.message : f.own)),
        keep(reinterpret_cast<P*>(f.keep != nullptr ? f.keep : f.onward)),
        onward(reinterpret_cast<P*>(f.onward != nullptr ? f.onward : f.keep)),
        keeps(f.keep != nullptr),
        sends(f.onward != nullptr) {}
};

// Moves a thread's kPacks packs i, i + kWarp, ..., whose addresses differ by constants. All loads
// come before the first use, to have them in flight together. `combine` is called with arrays of
// packs.
template <int kPacks, bool kAdds, class P, class Combine>
__device__ void move_packs(const Arrays<P>& f, unsigned i, const Combine& combine) {
  P x[kPacks], y[kAdds ? kPacks : 1];
#pragma unroll
  for (int u = 0; u < kPacks; ++u) x[u] = (f.first + i)[u * kWarp];
  if constexpr (kAdds) {
#pragma unroll
    for (int u = 0; u < kPacks; ++u) y[u] = (f.second + i)[u * kWarp];
  }
  combine(x, y);
  if (f.keeps) {
#pragma unroll
    for (int u = 0; u < kPacks; ++u) (f.keep + i)[u * kWarp] = x[u];
  }
  if (f.sends) {
#pragma unroll
    for (int u = 0; u < kPacks; ++u) (f.onward + i)[u * kWarp] = x[u];
  }
}

// Processes whole packs by the block's first `threads` threads, in full turns of kUnroll packs per
// thread, then one by one. Only the latter compare indices with the end. For sums of bytes kUnroll
// is 1, because each byte needs its own register for the reduction.
template <bool kAdds, class T, int kLanes, class Combine>
__device__ void flow_packs(const Flow& f, unsigned packs, unsigned threads,
                           const Combine& combine) {
  constexpr int kUnroll = kAdds && sizeof(T) == 1 ? 1 : 4;
  const Arrays<Pack<T, kLanes>> arrays(f);
  unsigned done = 0;
  if (threads % kWarp == 0) {
    const unsigned turn = kUnroll * threads;
    const unsigned mine = threadIdx.x / kWarp * (kUnroll * kWarp) + threadIdx.x % kWarp;
    for (; packs - done >= turn; done += turn)
      move_packs<kUnroll, kAdds>(arrays, done + mine, combine);
  }
  for (unsigned i = done + threadIdx.x; i < packs; i += threads)
    move_packs<1, kAdds>(arrays, i, combine);
}

template <bool kAdds, class T, class Combine>
__device__ void flow_elements(const Flow& f, unsigned threads, const Combine& combine) {
  for (unsigned i = threadIdx.x; i < f.count; i += threads) {
    const std::uint64_t at = std::uint64_t{i} * sizeof(T);
    Pack<T, 1> x[1], y[1];
    x[0].at[0] = load_element<T>((f.own != nullptr ? f.own : f.message) + at);
    if constexpr (kAdds) y[0].at[0] = load_element<T>(f.message + at);
    combine(x, y);
    if (f.keep != nullptr) store_element(f.keep + at, x[0].at[0]);
    if (f.onward != nullptr) store_element(f.onward + at, x[0].at[0]);
  }
}

// combine() computes the packs to store from the packs that were loaded.
template <bool kAdds, class T, class Combine>
__device__ void flow_with(const Flow& f, unsigned threads, const Combine& combine) {
  constexpr int kLanes = static_cast<int>(16 / sizeof(T));
  const auto all_aligned = [&](std::size_t bytes) {
    using kernels::cuda::aligned_for;
    return aligned_for(f.own, bytes) && aligned_for(f.message, bytes) &&
           aligned_for(f.keep, bytes) && aligned_for(f.onward, bytes);
  };
  if (!all_aligned(sizeof(T))) return flow_elements<kAdds, T>(f, threads, combine);
  Flow rest = f;
  if (all_aligned(16)) {
    const unsigned packs = f.count / kLanes;
    const std::uint64_t done = std::uint64_t{packs} * 16;
    flow_packs<kAdds, T, kLanes>(f, packs, threads, combine);
    rest = {f.own == nullptr ? nullptr : f.own + done,
            f.message == nullptr ? nullptr : f.message + done,
            f.keep == nullptr ? nullptr : f.keep + done,
            f.onward == nullptr ? nullptr : f.onward + done, f.count % kLanes};
  }
  flow_packs<kAdds, T, 1>(rest, rest.count, threads, combine);
}

// Must be called by the block's first `threads` threads. Arrays may be the same memory, but must
// not overlap partially.
template <class T>
__device__ void flow(const Flow& f, const Factored& a, unsigned threads) {
  if (f.keep == nullptr && f.onward == nullptr) return;
  if (f.own == nullptr || f.message == nullptr) {
    const bool scales = a.scaled && f.own != nullptr;
    flow_with<false, T>(f, threads, [&](auto& x, const auto& /*y*/) {
      if (!scales) return;
#pragma unroll
      for (auto& pack : x) scale_pack(pack, a);
    });
    return;
  }
  kernels::cuda::visit_reduction(a.reduction, [&](auto reduction) {
    constexpr kernels::Reduction op = decltype(reduction)::value;
    flow_with<true, T>(f, threads, [&](auto& x, const auto& y) {
      constexpr int kPacks = static_cast<int>(std::extent_v<std::remove_reference_t<decltype(x)>>);
      if (a.scaled) {
#pragma unroll
        for (int u = 0; u < kPacks; ++u) scale_pack(x[u], a);
      }
#pragma unroll
      for (int u = 0; u < kPacks; ++u) combine_pack<op>(x[u], y[u]);
    });
  });
}

}  // namespace ringsmith::comm::cuda_ipc
