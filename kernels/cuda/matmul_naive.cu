// Matrix product, version 1: a thread per element of C.
//
// Every element of A is read from memory n times and every element of B m times, i.e. 8 bytes for
// each multiply-add. Neighbouring threads have neighbouring columns, so a warp reads one element of
// A and part of a row of B.
#include "kernels/cuda/matmul.hpp"
#include "kernels/cuda/strided.cuh"
#include "kernels/cuda/tile_product.cuh"

namespace ringsmith::kernels::cuda {

namespace {

__global__ void naive(Product<float> p) {
  const std::int64_t size = p.c.rows * p.c.cols;
  for (std::int64_t e = first_item(); e < size * p.batches; e += item_stride()) {
    std::int64_t batch = e;
    const std::int64_t j = take_digit(batch, p.c.cols), i = take_digit(batch, p.c.rows);
    const float* const a = p.a.data + batch * p.a_batch + i * p.a.row_stride;
    const float* const b = p.b.data + batch * p.b_batch + j * p.b.col_stride;
    float sum = 0;
    for (std::int64_t k = 0; k < p.a.cols; ++k)
      sum = multiply_add(a[k * p.a.col_stride], b[k * p.b.row_stride], sum);
    if (p.bias != nullptr) sum += p.bias[j];
    float& c = p.c.data[batch * p.c_batch + i * p.c.row_stride + j * p.c.col_stride];
    c = p.store == Store::add ? c + sum : sum;
  }
}

}  // namespace

void matmul_naive(const Product<float>& p) {
  const std::int64_t n = p.c.rows * p.c.cols * p.batches;
  if (n > 0) launch_over(naive, n, kThreads, p);
}

}  // namespace ringsmith::kernels::cuda
