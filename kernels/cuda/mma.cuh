// A warp's instructions for tensor cores, and asynchronous copies into shared memory (compute
// capability 8.0 and above), as functions. kernels/vgpu/api/tensor.hpp emulates them.
//
// multiply_fragments: C (16 x 8, float) += A (16 x 16) B (16 x 8), operands bf16. With g = lane / 4
// and t = 2 (lane % 4), a lane holds pairs of neighbours in registers of 32 bits (PTX ISA, "Matrix
// Fragments for mma.m16n8k16"):
//
//        A   t      t+8               B    g              C    t t+1
//      g     a[0]   a[2]            t, t+1    b[0]        g    c[0] c[1]
//      g+8   a[1]   a[3]            t+8, t+9  b[1]        g+8  c[2] c[3]
//
// load_matrices<offset> (ldmatrix) loads such registers from shared memory. Lane 8 m + r provides
// the address of the 16 bytes of row r of matrix m, one of four 8 x 8 matrices. `offset` bytes are
// added to each address. They are a part of the instruction, whereas a second address would cost
// an instruction and a register. If A is stored by rows, the matrices at (0, 0) (8, 0) (0, 8)
// (8, 8) are a[0..3]. If B is stored by columns, they are b[0..1]. Operands that are stored the
// other way round are read transposed.
//
//   copy_async(to, from, bytes)   starts a copy of `bytes` bytes into shared memory, padded with
//                                 zeros to 16 bytes
//   copy_async_or_zeros(to, from, inside)   copies 16 bytes or, if not `inside`, writes 16 zeros
//   commit_copies()               makes one group of this thread's copies since the last commit
//   wait_for_copies<n>()          waits until all but the n newest groups of this thread have
//                                 arrived. Other threads see them only after a barrier
#pragma once

#include <cstdint>
#include <cuda_runtime.h>
#include <type_traits>
#include <utility>
#ifdef RINGSMITH_VGPU
#include "kernels/vgpu/api/tensor.hpp"
#endif

namespace ringsmith::kernels::cuda {

// Calls f(integral_constant<int, i>) for 0 <= i < n. Unlike the index of an unrolled loop, the
// argument is a constant expression.
template <int... i, class F>
__device__ void each_constant(std::integer_sequence<int, i...> /*sequence*/, const F& f) {
  (f(std::integral_constant<int, i>()), ...);
}
template <int n, class F>
__device__ void each_constant(const F& f) {
  each_constant(std::make_integer_sequence<int, n>(), f);
}

#ifdef RINGSMITH_VGPU

template <int offset = 0>
void load_matrices(std::uint32_t (&to)[4], const void* row,
                   vgpu::Source where = vgpu::Source::current()) {
  vgpu::load_matrices(to, static_cast<const char*>(row) + offset, false, where);
}
template <int offset = 0>
void load_matrices_transposed(std::uint32_t (&to)[4], const void* row,
                              vgpu::Source where = vgpu::Source::current()) {
  vgpu::load_matrices(to, static_cast<const char*>(row) + offset, true, where);
}
inline void multiply_fragments(float (&sums)[4], const std::uint32_t (&a)[4],
                               const std::uint32_t (&b)[2],
                               vgpu::Source where = vgpu::Source::current()) {
  vgpu::multiply_fragments(sums, a, b, where);
}
inline void copy_async(void* to, const void* from, int bytes,
                       vgpu::Source where = vgpu::Source::current()) {
  vgpu::copy_async(to, from, static_cast<unsigned>(bytes), where);
}
inline void copy_async_or_zeros(void* to, const void* from, bool inside,
                                vgpu::Source where = vgpu::Source::current()) {
  vgpu::copy_async(to, from, inside ? 16 : 0, where);
}
inline void commit_copies() { vgpu::commit_copies(); }
template <int may_remain>
void wait_for_copies() {
  vgpu::wait_for_copies(may_remain);
}

#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

__device__ inline unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
template <int offset = 0>
__device__ void load_matrices(std::uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4 + %5];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row)), "n"(offset)
               : "memory");
}
template <int offset = 0>
__device__ void load_matrices_transposed(std::uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4 + %5];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row)), "n"(offset)
               : "memory");
}
__device__ inline void multiply_fragments(float (&c)[4], const std::uint32_t (&a)[4],
                                          const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ inline void copy_async(void* to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(bytes)
               : "memory");
}
__device__ inline void copy_async_or_zeros(void* to, const void* from, bool inside) {
  asm volatile(
      "{\n.reg .pred outside;\nsetp.eq.s32 outside, %2, 0;\n"
      "cp.async.cg.shared.global [%0], [%1], 16, outside;\n}" ::"r"(shared_address(to)),
      "l"(from), "r"(static_cast<int>(inside))
      : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int may_remain>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(may_remain) : "memory");
}

#else  // older devices, for which the host never launches these kernels, and nvcc's host pass

template <int offset = 0>
__device__ void load_matrices(std::uint32_t (&)[4], const void*) {
  __trap();
}
template <int offset = 0>
__device__ void load_matrices_transposed(std::uint32_t (&)[4], const void*) {
  __trap();
}
__device__ inline void multiply_fragments(float (&)[4], const std::uint32_t (&)[4],
                                          const std::uint32_t (&)[2]) {
  __trap();
}
__device__ inline void copy_async(void*, const void*, int) { __trap(); }
__device__ inline void copy_async_or_zeros(void*, const void*, bool) { __trap(); }
__device__ inline void commit_copies() { __trap(); }
template <int may_remain>
__device__ void wait_for_copies() {
  __trap();
}

#endif

}  // namespace ringsmith::kernels::cuda
