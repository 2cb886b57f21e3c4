// Building blocks of the kernels: dispatch on a call's element type, the call's grid, polling with
// a limit, and one pass over data.
#pragma once

#include <cuda_runtime.h>

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
  std::uint64_t count;       // elements
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

// own = own (multiplied by the factor if a.scaled) op message, for each element of a pack. Without
// a message (`comes` is false), own is only multiplied.
template <kernels::Reduction op, class T, int kLanes, class Arithmetics>
__device__ void join(Pack<T, kLanes>& own, const Pack<T, kLanes>& message, bool comes,
                     const Arithmetics& a) {
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    const T x = a.scaled ? multiplied(own.at[i], a) : own.at[i];
    own.at[i] = comes ? kernels::cuda::combine<op>(x, message.at[i]) : x;
  }
}

// Processes whole packs, kUnroll at a time to keep several loads in flight. kUnroll is 1 for bytes,
// because the reduction needs a register for each byte.
template <kernels::Reduction op, class T, int kLanes>
__device__ void flow_packs(const Flow& f, std::uint64_t packs, const Factored& a) {
  using P = Pack<T, kLanes>;
  constexpr int kUnroll = sizeof(T) == 1 ? 1 : 4;
  const auto* const own = reinterpret_cast<const P*>(f.own);
  const auto* const message = reinterpret_cast<const P*>(f.message);
  auto* const keep = reinterpret_cast<P*>(f.keep);
  auto* const onward = reinterpret_cast<P*>(f.onward);
  for (std::uint64_t base = threadIdx.x; base < packs;
       base += std::uint64_t{kUnroll} * blockDim.x) {
    P x[kUnroll] = {}, y[kUnroll] = {};
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::uint64_t i = base + std::uint64_t{blockDim.x} * static_cast<unsigned>(u);
      if (i >= packs) break;
      if (own != nullptr) x[u] = own[i];
      if (message != nullptr) y[u] = message[i];
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::uint64_t i = base + std::uint64_t{blockDim.x} * static_cast<unsigned>(u);
      if (i >= packs) break;
      if (own != nullptr)
        join<op>(x[u], y[u], message != nullptr, a);
      else
        x[u] = y[u];
      const P out = x[u];
      if (keep != nullptr) keep[i] = out;
      if (onward != nullptr) onward[i] = out;
    }
  }
}

template <kernels::Reduction op, class T>
__device__ void flow_elements(const Flow& f, const Factored& a) {
  for (std::uint64_t i = threadIdx.x; i < f.count; i += blockDim.x) {
    const std::uint64_t at = i * sizeof(T);
    Pack<T, 1> x{}, y{};
    if (f.own != nullptr) x.at[0] = load_element<T>(f.own + at);
    if (f.message != nullptr) y.at[0] = load_element<T>(f.message + at);
    if (f.own != nullptr) join<op>(x, y, f.message != nullptr, a);
    const T out = f.own != nullptr ? x.at[0] : y.at[0];
    if (f.keep != nullptr) store_element(f.keep + at, out);
    if (f.onward != nullptr) store_element(f.onward + at, out);
  }
}

// Must be called by all threads of the block. Two arrays may be identical, but must not overlap
// partially.
template <class T>
__device__ void flow(const Flow& f, const Factored& a) {
  constexpr int kLanes = static_cast<int>(16 / sizeof(T));
  const auto all_aligned = [&](std::size_t bytes) {
    using kernels::cuda::aligned_for;
    return aligned_for(f.own, bytes) && aligned_for(f.message, bytes) &&
           aligned_for(f.keep, bytes) && aligned_for(f.onward, bytes);
  };
  const bool by_16 = all_aligned(16), by_element = all_aligned(sizeof(T));
  kernels::cuda::visit_reduction(a.reduction, [&](auto reduction) {
    constexpr kernels::Reduction op = decltype(reduction)::value;
    if (!by_element) return flow_elements<op, T>(f, a);
    Flow rest = f;
    if (by_16) {
      const std::uint64_t packs = f.count / kLanes, done = packs * 16;
      flow_packs<op, T, kLanes>(f, packs, a);
      rest = {f.own == nullptr ? nullptr : f.own + done,
              f.message == nullptr ? nullptr : f.message + done,
              f.keep == nullptr ? nullptr : f.keep + done,
              f.onward == nullptr ? nullptr : f.onward + done, f.count % kLanes};
    }
    flow_packs<op, T, 1>(rest, rest.count, a);
  });
}

}  // namespace ringsmith::comm::cuda_ipc
