// out = x^T in blocks of 4 x 4: four loads, eight shuffles, four stores, all in registers.
//
// A plain double loop would read or write one number in each cache line that it touches. This
// version moves 16 bytes at a time, and 16 rows together fill whole lines.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace ringsmith::kernels::cpu {
namespace {

typedef float Quad __attribute__((vector_size(16)));

template <class T>
[[gnu::always_inline]] inline void transpose_4x4(const T* x, std::int64_t x_stride, T* out,
                                                 std::int64_t out_stride) {
  Quad a, b, c, d;
  std::memcpy(&a, x, sizeof a);
  std::memcpy(&b, x + x_stride, sizeof b);
  std::memcpy(&c, x + 2 * x_stride, sizeof c);
  std::memcpy(&d, x + 3 * x_stride, sizeof d);
  const Quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);   // a0 b0 a1 b1
  const Quad ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);  // a2 b2 a3 b3
  const Quad cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Quad cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  a = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);  // a0 b0 c0 d0
  b = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);  // a1 b1 c1 d1
  c = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
  d = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
  std::memcpy(out, &a, sizeof a);
  std::memcpy(out + out_stride, &b, sizeof b);
  std::memcpy(out + 2 * out_stride, &c, sizeof c);
  std::memcpy(out + 3 * out_stride, &d, sizeof d);
}

// x is (rows, cols), out (cols, rows), each with contiguous rows. Strides are from row to row. T is
// any type of four bytes.
template <class T>
requires(sizeof(T) == 4) void transpose(const T* x, std::int64_t x_stride, std::int64_t rows,
                                        std::int64_t cols, T* out, std::int64_t out_stride) {
  constexpr std::int64_t kBand = 16;  // rows of x: a cache line of out
  const std::int64_t whole = cols / 4 * 4;
  for (std::int64_t band = 0; band < rows; band += kBand) {
    const std::int64_t last = std::min(rows, band + kBand), quads = band + (last - band) / 4 * 4;
    for (std::int64_t c = 0; c < whole; c += 4)
      for (std::int64_t r = band; r < quads; r += 4)
        transpose_4x4(x + r * x_stride + c, x_stride, out + c * out_stride + r, out_stride);
    for (std::int64_t c = 0; c < cols; ++c)  // the rest of the band: last rows or columns
      for (std::int64_t r = c < whole ? quads : band; r < last; ++r)
        out[c * out_stride + r] = x[r * x_stride + c];
  }
}

}  // namespace
}  // namespace ringsmith::kernels::cpu
