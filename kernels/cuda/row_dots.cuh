// The dot product of each row of two (batch, head, token, dim) tensors, which the backward pass of
// attention needs of dOut and Out.
//
//   lane      0    1    2  ...  7    0    1 ...      8 lanes have a row, a warp 4 rows. A lane
//   elements  0-   8-   16-     56-  64-  72- ...    loads packs of 16 bytes, 8 lanes a cache line
//
// The order of the sum depends only on dim: results change neither from run to run nor with the
// alignment of the operands.
#pragma once

#include "kernels/attention.hpp"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/strided.cuh"
#include "kernels/cuda/tile_product.cuh"

namespace ringsmith::kernels::cuda {

constexpr int kRowLanes = 8;

// Calls done(head, token, dot product) for `tokens_each` tokens of every head. Heads are numbered
// across all batches. The product is 0 for tokens beyond the last.
// `packs`: rows of both are aligned for packs, and consist of whole packs.
template <class T, class Sum, class Done>
__global__ void row_dots_kernel(Heads<const T> a, Heads<const T> b, AttentionShape s,
                                std::int64_t tokens_each, bool packs, Done done) {
  constexpr int kWidth = kPack<T>;
  const int lane = static_cast<int>(threadIdx.x) % kRowLanes;
  const std::int64_t rows = s.batch * s.heads * tokens_each;
  constexpr int kRows = kThreads / kRowLanes;  // of a block
  const std::int64_t mine = threadIdx.x / kRowLanes;
  // All lanes of a warp take part in the exchanges, even lanes without a row.
  for (std::int64_t first = std::int64_t{blockIdx.x} * kRows; first < rows;
       first += std::int64_t{gridDim.x} * kRows) {
    std::int64_t head = first + mine;
    const bool has_row = head < rows;
    const std::int64_t token = take_digit(head, tokens_each);
    Sum sum = 0;
    if (has_row && token < s.tokens) {
      std::int64_t batch = head;
      const std::int64_t h = take_digit(batch, s.heads);
      const T* const x = a.head(batch, h) + token * a.token_stride;
      const T* const y = b.head(batch, h) + token * b.token_stride;
      for (std::int64_t d = lane * kWidth; d < s.dim; d += kRowLanes * kWidth) {
        Pack<T, kWidth> u{}, v{};
        if (packs) {
          u = load_pack<kWidth>(x + d, 0);
          v = load_pack<kWidth>(y + d, 0);
        } else {
          for (int k = 0; k < kWidth && d + k < s.dim; ++k) {
            u.at[k] = x[d + k];
            v.at[k] = y[d + k];
          }
        }
#pragma unroll
        for (int k = 0; k < kWidth; ++k)
          sum = multiply_add(static_cast<Sum>(u.at[k]), static_cast<Sum>(v.at[k]), sum);
      }
    }
#pragma unroll
    for (int distance = kRowLanes / 2; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(0xffffffffU, sum, distance);
    if (has_row && lane == 0) done(head, token, sum);
  }
}

// Sum is the type of the products and of their sum.
template <class Sum, class T, class Done>
void row_dots(const Heads<const T>& a, const Heads<const T>& b, const AttentionShape& s,
              std::int64_t tokens_each, const Done& done) {
  const std::int64_t rows = s.batch * s.heads * tokens_each;
  const auto fits = [&](const Heads<const T>& h) {
    return aligned_for(h.data, kPack<T>) && h.batch_stride % kPack<T> == 0 &&
           h.head_stride % kPack<T> == 0 && h.token_stride % kPack<T> == 0;
  };
  const bool packs = fits(a) && fits(b) && s.dim % kPack<T> == 0;
  if (rows > 0)
    launch_over(row_dots_kernel<T, Sum, Done>, rows, kThreads / kRowLanes, a, b, s, tokens_each,
                packs, done);
}

}  // namespace ringsmith::kernels::cuda
