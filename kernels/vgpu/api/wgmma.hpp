// The PTX instructions of Hopper (sm_90a) that kernels/cuda/wgmma.cuh uses on a device: barriers in
// shared memory, copies of boxes of a tensor, products of a warpgroup. Only for shared memory of
// the same block (no clusters), in the dynamic part.
//
//   mbarrier    a thread that waits sleeps until the phase ends. If no thread can run and no copy
//               is in flight, the error names the barriers and what their phases still lack
//   copies      arrive immediately, or when some thread waits, as VGPU_SEED decides for each copy
//   wgmma       each of the four warps multiplies its 16 rows, when it issues the instruction or
//               when it waits for the group, as VGPU_SEED decides. The warps need not meet
//   the async   copies and products see what copies have written, and what threads had written
//   proxy       when a thread last called fence_async_proxy(). A product that reads a byte which
//               has changed since is an error
#pragma once

#include <cstdint>

#include "kernels/vgpu/api/thread.hpp"

struct CUtensorMap_st;  // CUtensorMap of <cuda.h>

namespace vgpu {

// The address of shared memory as an instruction has it: 18 bits. Equal to the pointer modulo 1024.
std::uint32_t shared_address(const void* shared, const Source& where);

void barrier_init(void* barrier, unsigned arrivals, const Source& where);
void barrier_expect(void* barrier, unsigned bytes, const Source& where);  // and arrives
void barrier_arrive(void* barrier, const Source& where);
void barrier_wait(void* barrier, unsigned parity, const Source& where);

// cp.async.bulk.tensor.3d: the box at (x, y, z), which completes the barrier's bytes.
void copy_box(void* to, const CUtensorMap_st& map, void* barrier, int x, int y, int z,
              const Source& where);
void fence_async_proxy(const Source& where);  // fence.proxy.async.shared::cta

// wgmma.mma_async.sync.aligned.m64nNk16.f32.bf16.bf16. `sums` are this lane's n / 2 sums of the 64
// rows' 16 that its warp has. The descriptors are PTX's, with the 128-byte swizzle. by_lines: the
// operand is stored by k, 64 lines beside each other (PTX: imm-trans is 1).
struct Multiply {
  float* sums;
  std::uint64_t a, b;
  unsigned n;
  bool a_by_lines, b_by_lines, add;
};
void multiply_async(Multiply multiply, const Source& where);
void fence_multiply(const Source& where);                      // wgmma.fence
void commit_multiply(const Source& where);                     // wgmma.commit_group
void wait_multiply(unsigned may_remain, const Source& where);  // wgmma.wait_group
// Called before a thread uses a sum: an error if a product that it has not waited for writes it.
void use_sums(const float* sums, const Source& where);
void set_registers(unsigned count, const Source& where);  // setmaxnreg

}  // namespace vgpu
