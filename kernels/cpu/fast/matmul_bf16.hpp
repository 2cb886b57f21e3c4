// Products of bf16 matrices with the dedicated instructions of x86 processors.
//
//   AVX-512-BF16   vdpbf16ps   16 sums, each += a0 b0 + a1 b1: 32 multiply-adds
//   AMX-BF16       tdpbf16ps   16 x 16 sums, each += 16 such pairs: 8,192 multiply-adds
//
// Both take pairs of neighbouring k, add in float, and round to nearest even. They differ from the
// float product of the widened matrices in two ways. First, they add in another order: vdpbf16ps
// adds a pair's second product first, and tdpbf16ps adds even and odd k separately, 16 pairs at a
// time, and then their sum to C. Second, they treat operands and results below 2^-126 as zero. NaN
// and infinity propagate, and sums of integers below 2^24 are exact. If no operand is below 2^-126,
// other sums of k products differ from the exact sum by at most
// (k + 2) (2^-24 (|c| + sum |a b|) + 2^-126) (tests/kernels/half_test.cpp).
//
// The bits of a bf16 training run therefore depend on the processor. DDP tolerates different
// processors: each rank computes gradients with its own instructions, but all ranks take the same
// step with the same average, so parameters remain equal to the bit (runtime/parallel/drift.hpp). A
// run that must have the same bits on every kind of processor uses --bf16-products widened.
#pragma once

#include "kernels/half.hpp"
#include "kernels/matmul.hpp"
#include "kernels/mode.hpp"

namespace ringsmith::kernels::cpu::fast {

// True if this processor and its Linux kernel support `how`. The first call for AMX asks Linux to
// let this process use tiles.
[[nodiscard]] bool processor_has(Bf16Products how);

// sums = (or +=) a b. `how` must not be `widened`, and the processor must support it. The memory of
// sums must have whole_tiles(sums.rows) rows of whole_tiles(sums.cols) floats. The part beyond sums
// is overwritten.
void product_bf16(const Matrix<const bf16>& a, const Matrix<const bf16>& b,
                  const Matrix<float>& sums, Store store, Bf16Products how);

constexpr std::int64_t kTileSide = 16;  // rows of a tile, floats of a vector
constexpr std::int64_t whole_tiles(std::int64_t n) {
  return (n + kTileSide - 1) / kTileSide * kTileSide;
}

}  // namespace ringsmith::kernels::cpu::fast
