// What a block does to data on its way: one pass over up to two arrays that come in, up to two that
// go out.
//
//     own, where the caller put it ----.                        .--> keep, the caller's output
//                                       own op message --------<
//     message, in a slot of this rank -'                        '--> onward, a slot of the next
//
// 16 bytes at a time where all addresses allow it, element by element where they do not, and byte
// by byte where the caller's buffer is not even aligned to its elements. The result is the same.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/reduce_ops.cuh"
#include "runtime/comm/transport/cuda_ipc/calls.hpp"

namespace ringsmith::comm::cuda_ipc {

using kernels::cuda::load_element;
using kernels::cuda::Pack;
using kernels::cuda::store_element;

struct Flow {
  const std::byte* own;      // null: nothing of one's own is added
  const std::byte* message;  // null: nothing has come
  std::byte* keep;           // null: nothing is kept
  std::byte* onward;         // null: nothing is sent on
  std::uint64_t count;       // elements
};

// One element or pack: own, scaled if need be, op message.
template <kernels::Reduction op, class T, int kLanes>
__device__ void join(Pack<T, kLanes>& own, const Pack<T, kLanes>* message, const Arithmetic& a) {
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    T x = a.scaled ? kernels::cuda::scaled(own.at[i], a.scale) : own.at[i];
    own.at[i] = message == nullptr ? x : kernels::cuda::combine<op>(x, message->at[i]);
  }
}

// Whole packs; as many loads are under way at once as kUnroll says.
template <kernels::Reduction op, class T, int kLanes>
__device__ void flow_packs(const Flow& f, std::uint64_t packs, const Arithmetic& a) {
  using P = Pack<T, kLanes>;
  constexpr int kUnroll = 4;
  const auto* const own = reinterpret_cast<const P*>(f.own);
  const auto* const message = reinterpret_cast<const P*>(f.message);
  auto* const keep = reinterpret_cast<P*>(f.keep);
  auto* const onward = reinterpret_cast<P*>(f.onward);
  for (std::uint64_t base = threadIdx.x; base < packs;
       base += std::uint64_t{kUnroll} * blockDim.x) {
    P x[kUnroll], y[kUnroll];
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
      if (own != nullptr) join<op>(x[u], message != nullptr ? &y[u] : nullptr, a);
      const P& out = own != nullptr ? x[u] : y[u];
      if (keep != nullptr) keep[i] = out;
      if (onward != nullptr) onward[i] = out;
    }
  }
}

template <kernels::Reduction op, class T>
__device__ void flow_elements(const Flow& f, const Arithmetic& a) {
  for (std::uint64_t i = threadIdx.x; i < f.count; i += blockDim.x) {
    const std::uint64_t at = i * sizeof(T);
    Pack<T, 1> x{}, y{};
    if (f.own != nullptr) x.at[0] = load_element<T>(f.own + at);
    if (f.message != nullptr) y.at[0] = load_element<T>(f.message + at);
    if (f.own != nullptr) join<op>(x, f.message != nullptr ? &y : nullptr, a);
    const T out = f.own != nullptr ? x.at[0] : y.at[0];
    if (f.keep != nullptr) store_element(f.keep + at, out);
    if (f.onward != nullptr) store_element(f.onward + at, out);
  }
}

// By all threads of the block. The arrays may be the same memory, none may overlap another in part.
// Not inlined: the verbs would otherwise hold a copy of it each.
template <class T>
__device__ __attribute__((noinline)) void flow(const Flow& f, const Arithmetic& a) {
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
