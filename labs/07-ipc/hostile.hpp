// What stands between the student's file of lab 07 and CUDA: calls are counted, flags are watched,
// and whoever stores or sees one may be late. Included before that file; driver.cpp takes the names
// away again behind it.
//
//   a store of a flag    the whole block pauses behind it, by seed: data that follow it are late
//   a load that sees     the block pauses before it goes on: a slot that is not protected by a
//   something new        credit is overwritten in the meantime
#pragma once

#include <atomic>
#include <chrono>
#include <cuda.h>
#include <cuda/atomic>
#include <cuda_runtime.h>
#include <thread>

#include "labs/kit/cuda.hpp"

namespace hostile {

constexpr int kMostRanks = 8;

struct Rank {
  std::atomic<const void*> polls = nullptr;  // the flag that it looks at again and again
  std::atomic<std::uint64_t> seen[16] = {};  // what it saw last, flag by flag
  std::atomic<std::uint64_t>& sees(const void* flag) {
    return seen[reinterpret_cast<std::uintptr_t>(flag) / 128 % 16];
  }
  // A relaxed store needs a fence between itself and the data before it; a relaxed load that has
  // seen something new needs one before the data that follow.
  std::atomic<bool> fenced = false, unfenced_load = false;
  std::atomic<std::int64_t> bare_stores = 0, bare_loads = 0;
  void data_may_follow() {
    fenced = false;
    if (unfenced_load.exchange(false)) ++bare_loads;
  }
  void fence() { fenced = true, unfenced_load = false; }
  std::atomic<bool> done = false;
};
inline Rank ranks[kMostRanks];
inline std::atomic<std::int64_t> progress = 0;  // flags stored, new values seen
inline std::atomic<std::int64_t> narrow = 0;    // flags of a scope that ends at the device
inline std::atomic<std::int64_t> opened = 0, closed = 0, syncs = 0, staged = 0;
inline std::atomic<std::uint64_t> seed = 1;
inline std::atomic<int> slow = -1;  // the rank that pauses at every flag
inline thread_local bool in_call = false;

inline Rank& me() { return ranks[kit::kernel_tag]; }

inline void pause() {
  thread_local std::uint64_t state = seed + 77 * std::uint64_t(kit::kernel_tag) + 1;
  state = state * 6364136223846793005U + 1442695040888963407U;
  const auto drawn = state >> 33;
  if (kit::kernel_tag != slow && drawn % 8 != 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds(20 + drawn % 200));
}

inline bool weak(cuda::memory_order order) { return order == cuda::memory_order_relaxed; }

// ---- calls of the host ----
inline cudaError_t cudaIpcOpenMemHandle(void** base, cudaIpcMemHandle_t handle, unsigned flags) {
  const cudaError_t code = ::cudaIpcOpenMemHandle(base, handle, flags);
  opened += code == cudaSuccess;
  return code;
}
inline cudaError_t cudaIpcCloseMemHandle(void* base) {
  const cudaError_t code = ::cudaIpcCloseMemHandle(base);
  closed += code == cudaSuccess;
  return code;
}
inline cudaError_t cudaDeviceSynchronize() { return syncs += in_call, ::cudaDeviceSynchronize(); }
inline cudaError_t cudaFree(void* p) { return syncs += in_call, ::cudaFree(p); }
inline cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  return syncs += in_call, ::cudaStreamSynchronize(s);
}
inline cudaError_t cudaStreamQuery(cudaStream_t s) {
  return syncs += in_call, ::cudaStreamQuery(s);
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  return syncs += in_call, ::cudaEventSynchronize(e);
}
inline cudaError_t cudaEventQuery(cudaEvent_t e) { return syncs += in_call, ::cudaEventQuery(e); }
inline bool on_host(const void* p) {
  cudaPointerAttributes attributes{};
  return cudaPointerGetAttributes(&attributes, p) != cudaSuccess ||
         attributes.type != cudaMemoryTypeDevice;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes,
                                   cudaMemcpyKind kind, cudaStream_t stream) {
  if (on_host(to) || on_host(from)) staged += std::int64_t(bytes);
  return ::cudaMemcpyAsync(to, from, bytes, kind, stream);
}
inline void fence() {
  me().fence();
  ::__threadfence_system();
}
inline void barrier(vgpu::Source where = vgpu::Source::current()) {
  me().data_may_follow();
  ::__syncthreads(where);
}

}  // namespace hostile

namespace cuda {

inline void watched_fence(memory_order order, thread_scope scope = thread_scope_system) {
  hostile::me().fence();
  atomic_thread_fence(order, scope);
}

template <class T, thread_scope Scope = thread_scope_system>
class watched_ref : public atomic_ref<T, Scope> {
  using Base = atomic_ref<T, Scope>;

 public:
  using Source = vgpu::Source;
  explicit watched_ref(T& object) : Base(object), p_(&object) {}
  T load(memory_order order = memory_order_seq_cst, Source where = Source::current()) const {
    const T value = Base::load(order, where);
    hostile::Rank& rank = hostile::me();
    if (Scope != thread_scope_system) ++hostile::narrow;
    rank.polls = p_;
    const auto now = static_cast<::std::uint64_t>(value);
    const bool fresh = rank.sees(p_).exchange(now) != now;
    if (!hostile::weak(order)) rank.unfenced_load = false;
    if (fresh && hostile::weak(order)) rank.unfenced_load = true, rank.fenced = false;
    if (fresh) ++hostile::progress, hostile::pause();
    return value;
  }
  void store(T value, memory_order order = memory_order_seq_cst) const {
    hostile::Rank& rank = hostile::me();
    if (Scope != thread_scope_system) ++hostile::narrow;
    if (hostile::weak(order) && !rank.fenced) ++rank.bare_stores;
    if (rank.unfenced_load.exchange(false)) ++rank.bare_loads;
    Base::store(value, order);
    ++hostile::progress;
    hostile::pause();
  }

 private:
  T* p_;
};

}  // namespace cuda

#define cudaIpcOpenMemHandle hostile::cudaIpcOpenMemHandle
#define cudaIpcCloseMemHandle hostile::cudaIpcCloseMemHandle
#define cudaDeviceSynchronize hostile::cudaDeviceSynchronize
#define cudaFree hostile::cudaFree
#define __syncthreads hostile::barrier
#define cudaStreamSynchronize hostile::cudaStreamSynchronize
#define cudaStreamQuery hostile::cudaStreamQuery
#define cudaEventSynchronize hostile::cudaEventSynchronize
#define cudaEventQuery hostile::cudaEventQuery
#define cudaMemcpyAsync hostile::cudaMemcpyAsync
#define __threadfence_system hostile::fence
#define atomic_thread_fence watched_fence
#define atomic_ref watched_ref
