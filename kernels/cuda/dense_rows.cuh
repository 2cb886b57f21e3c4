// Copies of matrices in bf16 for the tensor cores' kernels: one after another, in rows padded to a
// multiple of 8 elements (16 bytes). The rows run along whichever dimension is contiguous.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/scratch.hpp"
#include "kernels/cuda/strided.cuh"
#include "kernels/half.hpp"
#include "kernels/matmul.hpp"

namespace ringsmith::kernels::cuda {

// A separate function, because nvcc accepts no device lambda in a constructor.
template <class T>
void round_rows(const Matrix<const T>& from, std::int64_t batch_stride, std::int64_t count,
                std::int64_t stride, bf16* to) {
  for_each(from.rows * from.cols * count, [=] __device__(std::int64_t i) {
    std::int64_t rest = i;
    const std::int64_t c = take_digit(rest, from.cols), r = take_digit(rest, from.rows);
    to[(rest * from.rows + r) * stride + c] =
        bf16(from.data[rest * batch_stride + r * from.row_stride + c * from.col_stride]);
  });
}

struct DenseRows {
  Matrix<const bf16> matrix;  // the first of the batch
  std::int64_t batch;
  Scratch<bf16> memory;

  template <class T>
  DenseRows(const Matrix<const T>& m, std::int64_t batch_stride, std::int64_t batches)
      : batch(rounded_up(by_columns(m) ? m.rows : m.cols) * (by_columns(m) ? m.cols : m.rows)),
        memory(std::max<std::int64_t>(batch * (batch_stride == 0 ? 1 : batches), 1)) {
    const bool turned = by_columns(m);
    const Matrix<const T> from = turned ? m.t() : m;
    const std::int64_t stride = rounded_up(from.cols);
    const std::int64_t count = batch_stride == 0 ? 1 : batches;
    bf16* const to = memory.data();
    round_rows(from, batch_stride, count, stride, to);
    matrix = {to, from.rows, from.cols, stride, 1};
    if (turned) matrix = matrix.t();
    if (batch_stride == 0) batch = 0;
  }

 private:
  template <class T>
  static bool by_columns(const Matrix<const T>& m) {
    return m.row_stride == 1 && m.col_stride != 1;
  }
  static std::int64_t rounded_up(std::int64_t n) { return ceil_div(n, 8) * 8; }
};

}  // namespace ringsmith::kernels::cuda
