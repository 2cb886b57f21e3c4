// A layer between the student's file of lab 07 and CUDA: it counts calls, watches flags, and delays
// ranks that store or see a flag. Include this header before the student's file. driver.cpp
// undefines the macros after that file.
//
//   a post of a flag     the whole block pauses after it, by seed: data that follow it are late
//   a look that sees     the block pauses before it continues: a slot that is not protected by a
//   something new        credit is overwritten in the meantime
//
// A post is a store or another operation that changes the flag (fetch_add(1), exchange); a look is
// a load or an operation that does not change it (fetch_add(0), a compare_exchange that fails).
#pragma once

#include <atomic>
#include <chrono>
#include <cuda.h>
#include <cuda/atomic>
#include <cuda_runtime.h>
#include <mutex>
#include <thread>
#include <vector>

#include "labs/kit/cuda.hpp"

namespace hostile {

constexpr int kMostRanks = 8;

struct Rank {
  std::atomic<const void*> polls = nullptr;  // the flag that the rank polls
  std::atomic<std::uint64_t> seen[16] = {};  // the last value seen, per flag
  std::atomic<std::uint64_t>& sees(const void* flag) {
    return seen[reinterpret_cast<std::uintptr_t>(flag) / 128 % 16];
  }
  // A post without release needs a releasing fence between the data and the post. A look without
  // acquire that has seen something new needs an acquiring fence before the next access to data.
  std::atomic<bool> released = false, unfenced_look = false;
  std::atomic<std::int64_t> bare_posts = 0, bare_looks = 0;
  void data_may_follow() {
    released = false;
    if (unfenced_look.exchange(false)) ++bare_looks;
  }
  void fence(bool acquires, bool releases) {
    if (acquires) unfenced_look = false;
    if (releases) released = true;
  }
  // The last posted value of each flag.
  struct Post {
    const void* flag;
    std::uint64_t value;
  };
  std::mutex mutex;
  std::vector<Post> posts;
  std::atomic<bool> done = false;
};
inline Rank ranks[kMostRanks];
inline std::atomic<std::int64_t> progress = 0;  // flags stored, new values seen
inline std::atomic<std::int64_t> narrow = 0;    // accesses with a scope narrower than the system
inline std::atomic<std::int64_t> again = 0;     // posts that repeat the flag's last posted value
inline std::atomic<std::int64_t> opened = 0, closed = 0, syncs = 0, staged = 0;
inline std::atomic<std::uint64_t> seed = 1;
inline std::atomic<int> slow = -1;  // the rank that pauses at every post and every new value
inline thread_local bool in_call = false;

inline Rank& me() { return ranks[kit::kernel_tag]; }

inline void pause() {
  thread_local std::uint64_t state = seed + 77 * std::uint64_t(kit::kernel_tag) + 1;
  state = state * 6364136223846793005U + 1442695040888963407U;
  const auto drawn = state >> 33;
  if (kit::kernel_tag != slow && drawn % 8 != 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds(20 + drawn % 200));
}

inline bool acquires(cuda::memory_order order) {
  return order != cuda::memory_order_relaxed && order != cuda::memory_order_release;
}
inline bool releases(cuda::memory_order order) {
  return order != cuda::memory_order_relaxed && order != cuda::memory_order_acquire;
}

inline void looked(const void* flag, std::uint64_t now, cuda::memory_order order) {
  Rank& rank = me();
  rank.polls = flag;
  const bool fresh = rank.sees(flag).exchange(now) != now;
  if (acquires(order)) rank.unfenced_look = false;
  if (fresh && !acquires(order)) rank.unfenced_look = true, rank.released = false;
  if (fresh) ++progress, pause();
}
inline void will_post(const void* flag, std::uint64_t value, cuda::memory_order order) {
  Rank& rank = me();
  if (!releases(order) && !rank.released) ++rank.bare_posts;
  if (rank.unfenced_look.exchange(false)) ++rank.bare_looks;
  const std::lock_guard lock(rank.mutex);
  for (Rank::Post& post : rank.posts)
    if (post.flag == flag) {
      again += post.value == value;
      post.value = value;
      return;
    }
  rank.posts.push_back({flag, value});
}
inline void posted() { ++progress, pause(); }
// True if this value was the last one that `rank` posted to the flag.
inline bool left(int rank, const void* flag, std::uint64_t value) {
  const std::lock_guard lock(ranks[rank].mutex);
  for (const Rank::Post& post : ranks[rank].posts)
    if (post.flag == flag) return post.value == value;
  return false;
}

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
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  syncs += in_call;
  if (on_host(to) || on_host(from)) staged += std::int64_t(bytes);
  return ::cudaMemcpy(to, from, bytes, kind);
}
inline void fence() {
  me().fence(true, true);
  ::__threadfence_system();
}
inline void barrier(vgpu::Source where = vgpu::Source::current()) {
  me().data_may_follow();
  ::__syncthreads(where);
}

}  // namespace hostile

namespace cuda {

// A fence with a scope narrower than the system orders nothing for a neighbour.
inline void watched_fence(memory_order order, thread_scope scope = thread_scope_system) {
  if (scope == thread_scope_system)
    hostile::me().fence(hostile::acquires(order), hostile::releases(order));
  atomic_thread_fence(order, scope);
}

template <class T, thread_scope Scope = thread_scope_system>
class watched_ref : public atomic_ref<T, Scope> {
  using Base = atomic_ref<T, Scope>;

 public:
  using Source = vgpu::Source;
  explicit watched_ref(T& object) : Base(object), p_(&object) {}
  T load(memory_order order = memory_order_seq_cst, Source where = Source::current()) const {
    return look(Base::load(order, where), order);
  }
  void store(T value, memory_order order = memory_order_seq_cst) const {
    narrow();
    hostile::will_post(p_, word(value), order);
    Base::store(value, order);
    hostile::posted();
  }
  bool compare_exchange_strong(T& expected, T desired, memory_order success, memory_order failure,
                               Source where = Source::current()) const {
    narrow();
    if (expected != desired) hostile::will_post(p_, word(desired), success);
    const bool done = Base::compare_exchange_strong(expected, desired, success, failure, where);
    if (done && expected != desired)
      hostile::posted();
    else
      look(expected, done ? success : failure);
    return done;
  }
  bool compare_exchange_strong(T& expected, T desired, memory_order order = memory_order_seq_cst,
                               Source where = Source::current()) const {
    return compare_exchange_strong(expected, desired, order, order, where);
  }
  bool compare_exchange_weak(T& expected, T desired, memory_order order = memory_order_seq_cst,
                             Source where = Source::current()) const {
    return compare_exchange_strong(expected, desired, order, where);
  }
  // The other operations use compare_exchange, because whether they change the flag depends on its
  // old value.
  T exchange(T value, memory_order order = memory_order_seq_cst,
             Source where = Source::current()) const {
    return change([&](T) { return value; }, order, where);
  }
  T fetch_add(T value, memory_order order = memory_order_seq_cst,
              Source where = Source::current()) const {
    return change([&](T old) { return T(old + value); }, order, where);
  }
  T fetch_sub(T value, memory_order order = memory_order_seq_cst,
              Source where = Source::current()) const {
    return change([&](T old) { return T(old - value); }, order, where);
  }
  T fetch_or(T value, memory_order order = memory_order_seq_cst,
             Source where = Source::current()) const {
    return change([&](T old) { return T(old | value); }, order, where);
  }
  T fetch_and(T value, memory_order order = memory_order_seq_cst,
              Source where = Source::current()) const {
    return change([&](T old) { return T(old & value); }, order, where);
  }
  operator T() const { return load(); }
  T operator=(T value) const {
    store(value);
    return value;
  }

 private:
  static ::std::uint64_t word(T value) { return static_cast<::std::uint64_t>(value); }
  static void narrow() {
    if (Scope != thread_scope_system) ++hostile::narrow;
  }
  T look(T value, memory_order order) const {
    narrow();
    hostile::looked(p_, word(value), order);
    return value;
  }
  template <class F>
  T change(const F& f, memory_order order, Source where) const {
    for (T old = Base::load(memory_order_relaxed, where);;) {
      const T next = f(old);
      if (next != old) hostile::will_post(p_, word(next), order);
      if (!Base::compare_exchange_strong(old, next, order, order_of_failure(order), where))
        continue;
      narrow();
      if (next == old) return look(old, order);
      hostile::posted();
      return old;
    }
  }
  static memory_order order_of_failure(memory_order order) {
    return hostile::acquires(order) ? memory_order_acquire : memory_order_relaxed;
  }

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
#define cudaMemcpy hostile::cudaMemcpy
#define __threadfence_system hostile::fence
#define atomic_thread_fence watched_fence
#define atomic_ref watched_ref
