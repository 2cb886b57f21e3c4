// What a CUDA thread sees: its index, the barrier of its block, fences, and the points at which it
// gives the other threads a turn.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/vgpu/api/vector_types.hpp"

namespace vgpu {

// Where in the source a call stands, as a default argument: std::source_location, which clang 14
// does not have.
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

// The part of a thread and of its block that kernels read directly.
struct ThreadView {
  uint3 index;
};
struct BlockView {
  uint3 index;
  dim3 block_dim;
  dim3 grid_dim;
  void* dynamic_shared;
};
// Null on a thread that runs no kernel. A block never moves to another OS thread, so that these may
// be cached across a switch. local-exec: only programs link this library, and of the loads that g++
// makes for AVX-512 in another model some are beyond the linker (TLS transition failed).
#define VGPU_IN_PROGRAM __attribute__((tls_model("local-exec")))
extern constinit thread_local ThreadView* current_thread VGPU_IN_PROGRAM;
extern constinit thread_local BlockView* current_block VGPU_IN_PROGRAM;

// The thread has read `value` at `address`, not for the first time perhaps: if it keeps reading the
// same, the other threads and blocks get a turn. Called by every atomic operation.
void loaded(const void* address, std::uint64_t value, const Source& where);
// Orders plain accesses under ThreadSanitizer, which does not know fences.
void fence(bool acquire, bool release);
// An atomic store to p follows: after a release fence it publishes what came before the fence.
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

// All threads of the block meet here, or the kernel is wrong and reported: a thread that has left,
// or that waits at another line, never comes. Orders memory within the block.
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

long long clock64();  // nanoseconds, whatever the clock rate of a device
