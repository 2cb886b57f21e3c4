// The PTX instructions that kernels/cuda/mma.cuh uses on a device: a warp's tensor core operations,
// and asynchronous copies.
//
//   ldmatrix   all 32 lanes meet, and the last to arrive reads all rows
//   mma        all 32 lanes meet
//   cp.async   copies immediately or when its thread waits for its group, as VGPU_SEED decides
//              for each copy. Thus a missing wait, commit or barrier shows up: a thread reads a
//              stage that has not arrived, or overwrites a stage that another thread still reads
#pragma once

#include <cstdint>

#include "kernels/vgpu/api/thread.hpp"

namespace vgpu {

// ldmatrix.sync.aligned.m8n8.x4{.trans}.shared.b16: four 8 x 8 matrices of 16-bit elements. Lane
// 8 m + r passes row r of matrix m. to[m] receives element 2 (lane % 4) of row lane / 4
// (transposed: of column lane / 4) and the element after it.
void load_matrices(std::uint32_t (&to)[4], const void* row, bool transposed, const Source& where);

// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32: sums += a b, in the layouts of PTX ISA,
// "Matrix Fragments for mma.m16n8k16".
void multiply_fragments(float (&sums)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                        const Source& where);

// cp.async.cg.shared.global [to], [from], 16, bytes: the rest of the 16 bytes becomes zero.
void copy_async(void* to, const void* from, unsigned bytes, const Source& where);
void commit_copies();                       // cp.async.commit_group
void wait_for_copies(unsigned may_remain);  // cp.async.wait_group may_remain

// All 32 lanes of the warp meet, and the last to arrive calls together(pointers) in Quiet
// (order.hpp), where pointers[l] is lane l's `brought`. If a lane is missing, an error is reported.
using Together = void (*)(void* const* brought);
void meet_together(Together together, void* brought, const Source& where);

}  // namespace vgpu
