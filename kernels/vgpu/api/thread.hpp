// The CUDA features of a thread: its index, the barrier of its block, fences, the points at which
// it yields to other threads, and its warp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/vgpu/api/language.hpp"

namespace vgpu {

// The source position of a call, as a default argument (clang 14 lacks std::source_location).
class Source {
 public:
  static constexpr Source current(const char* file = __builtin_FILE(),
                                  unsigned line = __builtin_LINE()) {
    Source s;
    s.file_ = file;
    s.line_ = line;
    return s;
  }
  [[nodiscard]] const char* file_name() const { return file_; }
  [[nodiscard]] unsigned line() const { return line_; }

 private:
  const char* file_ = "";
  unsigned line_ = 0;
};

struct ThreadView {
  uint3 index;
};
struct BlockView {
  uint3 index;
  dim3 block_dim;
  dim3 grid_dim;
  void* dynamic_shared;
};
// current_thread and current_block are null on an OS thread that runs no kernel. A block never
// moves to another OS thread, so both pointers may be cached across a switch. If the library is
// linked into the program, the TLS model is local-exec, because with any other model the linker
// rejects some loads that g++ generates for AVX-512 ("TLS transition failed"). With VGPU_SHARED the
// variables are in a shared library, which all objects of the process share.
#ifdef VGPU_SHARED
#define VGPU_TLS __attribute__((tls_model("initial-exec")))
#else
#define VGPU_TLS __attribute__((tls_model("local-exec")))
#endif
extern constinit thread_local ThreadView* current_thread VGPU_TLS;
extern constinit thread_local BlockView* current_block VGPU_TLS;

// Called by every atomic operation that reads: the thread has read `value` at `address`. If it
// keeps reading the same value, the other threads and blocks get a turn.
void loaded(const void* address, std::uint64_t value, const Source& where);
// A memory fence. Under ThreadSanitizer, which does not model fences, declares the order instead.
void fence(bool acquire, bool release);
// Called before an atomic store to p. After a release fence, the store publishes all accesses
// before the fence.
void publish(void* p);
enum class Combine : std::uint8_t { none, count, all, any };
int barrier(Combine combine, bool predicate, const Source& where);
[[noreturn]] void trap(const Source& where);
void nanosleep(unsigned ns, const Source& where);

}  // namespace vgpu

#define threadIdx (::vgpu::current_thread->index)
#define blockIdx (::vgpu::current_block->index)
#define blockDim (::vgpu::current_block->block_dim)
#define gridDim (::vgpu::current_block->grid_dim)
inline constexpr int warpSize = 32;

// All threads of the block must meet here. If a thread has left the kernel or waits at another
// line, an error ends the process. Orders memory within the block.
inline void __syncthreads(vgpu::Source where = vgpu::Source::current()) {
  vgpu::barrier(vgpu::Combine::none, false, where);
}
inline int __syncthreads_count(int predicate, vgpu::Source where = vgpu::Source::current()) {
  return vgpu::barrier(vgpu::Combine::count, predicate != 0, where);
}
inline int __syncthreads_and(int predicate, vgpu::Source where = vgpu::Source::current()) {
  return vgpu::barrier(vgpu::Combine::all, predicate != 0, where);
}
inline int __syncthreads_or(int predicate, vgpu::Source where = vgpu::Source::current()) {
  return vgpu::barrier(vgpu::Combine::any, predicate != 0, where);
}

inline void __threadfence_block() { vgpu::fence(true, true); }
inline void __threadfence() { vgpu::fence(true, true); }
inline void __threadfence_system() { vgpu::fence(true, true); }

inline void __nanosleep(unsigned ns, vgpu::Source where = vgpu::Source::current()) {
  vgpu::nanosleep(ns, where);
}
[[noreturn]] inline void __trap(vgpu::Source where = vgpu::Source::current()) { vgpu::trap(where); }

// ---- warp shuffles and votes: 32 neighbouring threads exchange registers ----
//
// All lanes named in the mask meet at the call. As on the device, a shuffle orders no memory
// (__syncwarp does). Reading from a lane that did not call it is undefined on a device; here it
// gives all ones, which is NaN in every floating-point type.

namespace vgpu {

enum class Vote : std::uint8_t { all, any, ballot };

// Returns the value that lane `from` (0 to 31) brought to this meeting.
std::uint64_t shuffle(unsigned mask, std::uint64_t value, unsigned from, const Source& where);
unsigned vote(Vote kind, unsigned mask, bool predicate, const Source& where);
void sync_warp(unsigned mask, const Source& where);
unsigned lane();

template <class T>
T shuffle_value(unsigned mask, T value, unsigned from, const Source& where) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = shuffle(mask, bits, from, where);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace vgpu

// width splits the warp into groups of `width` lanes. __shfl_sync takes `from` modulo width. With
// the others, a lane whose partner is outside its group keeps its own value, except that xor may
// read from earlier groups.
template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32,
              vgpu::Source where = vgpu::Source::current()) {
  const unsigned group = vgpu::lane() & ~(static_cast<unsigned>(width) - 1);
  return vgpu::shuffle_value(
      mask, value, group + (static_cast<unsigned>(from) & (static_cast<unsigned>(width) - 1)),
      where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 vgpu::Source where = vgpu::Source::current()) {
  const unsigned lane = vgpu::lane(), in_group = lane & (static_cast<unsigned>(width) - 1);
  return vgpu::shuffle_value(mask, value, delta <= in_group ? lane - delta : lane, where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   vgpu::Source where = vgpu::Source::current()) {
  const unsigned lane = vgpu::lane(), in_group = lane & (static_cast<unsigned>(width) - 1);
  return vgpu::shuffle_value(
      mask, value, delta < static_cast<unsigned>(width) - in_group ? lane + delta : lane, where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32,
                  vgpu::Source where = vgpu::Source::current()) {
  const unsigned lane = vgpu::lane(), from = lane ^ static_cast<unsigned>(lanes);
  const unsigned group_end = (lane | (static_cast<unsigned>(width) - 1)) + 1;
  return vgpu::shuffle_value(mask, value, from < group_end ? from : lane, where);
}

inline int __all_sync(unsigned mask, int predicate, vgpu::Source where = vgpu::Source::current()) {
  return static_cast<int>(vgpu::vote(vgpu::Vote::all, mask, predicate != 0, where));
}
inline int __any_sync(unsigned mask, int predicate, vgpu::Source where = vgpu::Source::current()) {
  return static_cast<int>(vgpu::vote(vgpu::Vote::any, mask, predicate != 0, where));
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              vgpu::Source where = vgpu::Source::current()) {
  return vgpu::vote(vgpu::Vote::ballot, mask, predicate != 0, where);
}
// Orders memory among the lanes of the mask.
inline void __syncwarp(unsigned mask = 0xffffffffU, vgpu::Source where = vgpu::Source::current()) {
  vgpu::sync_warp(mask, where);
}
