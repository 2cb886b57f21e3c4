// Hopper's instructions for matrices (sm_90a), as functions. kernels/vgpu/api/wgmma.hpp emulates
// them.
//
// A warpgroup, 4 warps, multiplies matrices that it does not load: wgmma reads A and B from shared
// memory, and its tensor cores read there while the threads do other things. A thread keeps nothing
// but sums. The copies into shared memory need no threads either: one instruction of one thread
// copies a box of a tensor (TMA, cp.async.bulk.tensor). Both report to barriers:
//
//   Barrier              8 bytes of shared memory (mbarrier). It counts phases. A phase ends when
//                        the expected threads have arrived and all announced bytes, too
//   init_barrier(b, n)   each phase expects n arrivals. fence_async_proxy() and a barrier of the
//                        block must follow before any use
//   arrive(b)            one arrival
//   expect_bytes(b, n)   one arrival, which announces n bytes
//   wait(b, parity)      until the phase of this parity has ended: the first has parity 0
//   copy_box(to, map, b, x, y, z)   copies the map's box at (x, y, z), zeros outside of the tensor,
//                        to shared memory. The bytes arrive at b
//   fence_async_proxy()  the copies and products of this block see the thread's stores in shared
//                        memory, which they otherwise need not
//
// A box has rows of 128 bytes, and the copy swizzles them: the 16-byte parts of row r are stored in
// the order part ^ (r % 8). So 8 rows of one column are in different banks. The product undoes it.
//
//   matrix(p, leading, stride)   describes a matrix in shared memory for wgmma, in rows of 128
//                        bytes. Before the swizzle, element k of line i is at byte
//                          i / 8 stride + i % 8 * 128 + 2 k                  (stored by lines)
//                          i / 64 leading + k / 8 stride + k % 8 * 128 + i % 64 * 2   (by k)
//                        By lines, numbers of one line are neighbours; by k, numbers of one k
//   multiply_async(sums, a, b, add)   64 x n sums (+)= A (64 x 16) B (16 x n), later
//   fence_multiply()     before the first product, and whenever a thread has used its sums
//   commit_multiply()    makes one group of the products since the last commit
//   wait_multiply<n>()   until all but the n newest groups have been computed, and their operands
//                        may be overwritten
//   finish_multiply(sums)   waits for all. Only now may the thread use its sums
//
// Sum (row, column) of the warpgroup's 64 x n: warp w has rows 16 w to 16 w + 15, in the layout of
// mma.cuh: lane l has rows l / 4 and l / 4 + 8, and of each 8 columns 2 (l % 4) and the next.
#pragma once

#include <cstdint>
#include <cuda.h>
#include <cuda_runtime.h>
#ifdef RINGSMITH_VGPU
#include "kernels/vgpu/api/wgmma.hpp"
#endif

namespace ringsmith::kernels::cuda {

using Barrier = std::uint64_t;

#ifdef RINGSMITH_VGPU
#define RINGSMITH_WHERE vgpu::Source where = vgpu::Source::current()

template <int n>
class Accumulators {
 public:
  // Row lane / 4 + 8 half of the warp's 16, column 8 block + 2 (lane % 4) + next.
  float operator()(int block, int half, int next, RINGSMITH_WHERE) const {
    vgpu::use_sums(sums_, where);
    return sums_[block * 4 + half * 2 + next];
  }
  float* data() { return sums_; }

 private:
  float sums_[n / 2];
};

inline void init_barrier(Barrier* b, int arrivals, RINGSMITH_WHERE) {
  vgpu::barrier_init(b, static_cast<unsigned>(arrivals), where);
}
inline void arrive(Barrier* b, RINGSMITH_WHERE) { vgpu::barrier_arrive(b, where); }
inline void expect_bytes(Barrier* b, int bytes, RINGSMITH_WHERE) {
  vgpu::barrier_expect(b, static_cast<unsigned>(bytes), where);
}
inline void wait(Barrier* b, int parity, RINGSMITH_WHERE) {
  vgpu::barrier_wait(b, static_cast<unsigned>(parity), where);
}
inline void copy_box(void* to, const CUtensorMap& map, Barrier* b, int x, int y, int z,
                     RINGSMITH_WHERE) {
  vgpu::copy_box(to, map, b, x, y, z, where);
}
inline void fence_async_proxy(RINGSMITH_WHERE) { vgpu::fence_async_proxy(where); }
inline std::uint32_t shared_bits(const void* p, RINGSMITH_WHERE) {
  return vgpu::shared_address(p, where);
}
template <bool a_by_k, bool b_by_k, int n>
void multiply_async(Accumulators<n>& sums, std::uint64_t a, std::uint64_t b, bool add,
                    RINGSMITH_WHERE) {
  vgpu::multiply_async({sums.data(), a, b, n, a_by_k, b_by_k, add}, where);
}
inline void fence_multiply(RINGSMITH_WHERE) { vgpu::fence_multiply(where); }
inline void commit_multiply(RINGSMITH_WHERE) { vgpu::commit_multiply(where); }
template <int may_remain>
void wait_multiply(RINGSMITH_WHERE) {
  vgpu::wait_multiply(may_remain, where);
}
template <int n>
void finish_multiply(Accumulators<n>& /*sums*/, RINGSMITH_WHERE) {
  vgpu::wait_multiply(0, where);
}
template <int count>
void fewer_registers(RINGSMITH_WHERE) {
  vgpu::set_registers(count, where);
}
template <int count>
void more_registers(RINGSMITH_WHERE) {
  vgpu::set_registers(count, where);
}
#undef RINGSMITH_WHERE

#else

template <int n>
class Accumulators {
 public:
  __device__ float operator()(int block, int half, int next) const {
    return data[block * 4 + half * 2 + next];
  }
  float data[n / 2];  // only for the functions below
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

__device__ inline std::uint32_t shared_bits(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}
__device__ inline void init_barrier(Barrier* b, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_bits(b)), "r"(arrivals)
               : "memory");
}
__device__ inline void arrive(Barrier* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_bits(b)) : "memory");
}
__device__ inline void expect_bytes(Barrier* b, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_bits(b)),
               "r"(bytes)
               : "memory");
}
// try_wait suspends the thread for a while that the device chooses. A call in this loop would make
// the compiler move all sums out of the registers of the tensor cores.
__device__ inline void wait(Barrier* b, int parity) {
  int ended = 0;
  do {
    asm volatile(
        "{\n.reg .pred ended;\nmbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
        "selp.s32 %0, 1, 0, ended;\n}"
        : "=r"(ended)
        : "r"(shared_bits(b)), "r"(parity)
        : "memory");
  } while (ended == 0);
}
__device__ inline void copy_box(void* to, const CUtensorMap& map, Barrier* b, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4, %5}], [%2];" ::"r"(shared_bits(to)),
      "l"(&map), "r"(shared_bits(b)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ inline void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void fence_multiply() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_multiply() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int may_remain>
__device__ void wait_multiply() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(may_remain) : "memory");
}
// The empty statement keeps the compiler from using a sum before the wait.
template <int n>
__device__ void finish_multiply(Accumulators<n>& sums) {
  wait_multiply<0>();
#pragma unroll
  for (float& sum : sums.data) asm volatile("" : "+f"(sum)::"memory");
}
template <int count>
__device__ void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
__device__ void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

#define RINGSMITH_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define RINGSMITH_16(i) RINGSMITH_4(i), RINGSMITH_4(i + 4), RINGSMITH_4(i + 8), RINGSMITH_4(i + 12)
#define RINGSMITH_64(i) \
  RINGSMITH_16(i), RINGSMITH_16(i + 16), RINGSMITH_16(i + 32), RINGSMITH_16(i + 48)
template <bool a_by_k, bool b_by_k>
__device__ void multiply_async(Accumulators<128>& sums, std::uint64_t a, std::uint64_t b,
                               bool add) {
  float(&d)[64] = sums.data;
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.s32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, add, 1, 1, %67, %68;\n}"
      : RINGSMITH_64(0)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(a_by_k ? 1 : 0), "n"(b_by_k ? 1 : 0));
}

template <bool a_by_k, bool b_by_k>
__device__ void multiply_async(Accumulators<256>& sums, std::uint64_t a, std::uint64_t b,
                               bool add) {
  float(&d)[128] = sums.data;
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.s32 add, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "
      "%127"
      "}, %128, %129, add, 1, 1, %131, %132;\n}"
      : RINGSMITH_64(0), RINGSMITH_64(64)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(a_by_k ? 1 : 0), "n"(b_by_k ? 1 : 0));
}
#undef RINGSMITH_64
#undef RINGSMITH_16
#undef RINGSMITH_4

#else  // other devices, for which the host never launches these kernels, and nvcc's host pass

__device__ inline std::uint32_t shared_bits(const void*) { return 0; }
__device__ inline void init_barrier(Barrier*, int) { __trap(); }
__device__ inline void arrive(Barrier*) { __trap(); }
__device__ inline void expect_bytes(Barrier*, int) { __trap(); }
__device__ inline void wait(Barrier*, int) { __trap(); }
__device__ inline void copy_box(void*, const CUtensorMap&, Barrier*, int, int, int) { __trap(); }
__device__ inline void fence_async_proxy() { __trap(); }
__device__ inline void fence_multiply() { __trap(); }
__device__ inline void commit_multiply() { __trap(); }
template <int may_remain>
__device__ void wait_multiply() {
  __trap();
}
template <int n>
__device__ void finish_multiply(Accumulators<n>& sums) {
  for (float& sum : sums.data) sum = 0;
}
template <int count>
__device__ void fewer_registers() {}
template <int count>
__device__ void more_registers() {}
template <bool a_by_k, bool b_by_k, int n>
__device__ void multiply_async(Accumulators<n>&, std::uint64_t, std::uint64_t, bool) {
  __trap();
}

#endif
#endif

// `p` is a pointer to shared memory whose swizzle begins at a multiple of 1024 bytes.
__device__ inline std::uint64_t matrix(const void* p, int leading, int stride) {
  constexpr std::uint64_t kSwizzle128 = 1;
  return (shared_bits(p) & 0x3ffff) >> 4 | static_cast<std::uint64_t>(leading >> 4) << 16 |
         static_cast<std::uint64_t>(stride >> 4) << 32 | kSwizzle128 << 62;
}

}  // namespace ringsmith::kernels::cuda
