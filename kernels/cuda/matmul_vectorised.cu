// Matrix product, version 4: 128 x 128 of C by 256 threads, 8 x 8 each, with two more ideas.
//
//   packs             slabs are read from memory 16 bytes at a time, along whichever dimension is
//                     contiguous, and stored in shared memory as slab[k][i], in which a thread's
//                     operands are contiguous. Its columns are two groups of four, 64 apart, so
//                     that eight neighbouring threads read 128 bytes without a bank conflict
//   double buffering  while a slab is multiplied, the next is in flight from memory to registers.
//                     The other half of shared memory receives it, so arithmetic hides the
//                     latency, and one barrier per slab is enough
//
//   fetch 0  put 0 | fetch 1  multiply 0  put 1 | fetch 2  multiply 1  put 2 | ...   ( | barrier )
#include "kernels/cuda/matmul.hpp"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/tile_product.cuh"

namespace ringsmith::kernels::cuda {

namespace {

constexpr int kTile = 128, kDepth = 16, kSums = 8, kPackSize = 4;
constexpr int kHalf = kTile / 2;
constexpr int kAcross = kTile / kSums;                           // threads across a tile
constexpr int kFetched = kTile * kDepth / kPackSize / kThreads;  // packs per operand and thread
constexpr int kPadded = kTile + kPackSize;

struct alignas(16) Slab {
  float at[kDepth][kPadded];  // [k][row or column]
};

// A, or B transposed, as `size` rows. Element (i, k) is data[i * stride + k * k_stride].
struct Operand {
  const float* data;
  std::int64_t size, stride, k_stride;
  bool packs;  // one stride is 1, the other and the pointer fit packs

  __device__ bool along_k() const { return k_stride == 1; }
  // The i and k (within the slab) of pack number e.
  __device__ int row_of(int e) const {
    return along_k() ? e / (kDepth / kPackSize) : e % (kTile / kPackSize) * kPackSize;
  }
  __device__ int k_of(int e) const {
    return along_k() ? e % (kDepth / kPackSize) * kPackSize : e / (kTile / kPackSize);
  }
  __device__ Pack<float, kPackSize> fetch(std::int64_t i, std::int64_t k,
                                          std::int64_t depth) const {
    const std::int64_t rows_left = size - i, k_left = depth - k;
    const std::int64_t here = i * stride + k * k_stride;
    const bool whole =
        along_k() ? rows_left > 0 && k_left >= kPackSize : k_left > 0 && rows_left >= kPackSize;
    if (packs && whole) return load_pack<kPackSize>(data + here, 0);
    Pack<float, kPackSize> pack;
    for (int q = 0; q < kPackSize; ++q) {
      const bool inside = along_k() ? rows_left > 0 && k_left > q : k_left > 0 && rows_left > q;
      pack.at[q] = inside ? data[here + q * (along_k() ? k_stride : stride)] : 0;
    }
    return pack;
  }
  __device__ void put(Slab& slab, int e, const Pack<float, kPackSize>& pack) const {
    const int i = row_of(e), k = k_of(e);
    if (along_k())
      for (int q = 0; q < kPackSize; ++q) slab.at[k + q][i] = pack.at[q];
    else
      store_pack(&slab.at[k][i], 0, pack);
  }
};

struct Fetched {
  Pack<float, kPackSize> packs[kFetched];
  __device__ void fetch(const Operand& from, std::int64_t row, std::int64_t k, std::int64_t depth) {
#pragma unroll
    for (int f = 0; f < kFetched; ++f) {
      const int e = static_cast<int>(threadIdx.x) + f * kThreads;
      packs[f] = from.fetch(row + from.row_of(e), k + from.k_of(e), depth);
    }
  }
  __device__ void put(const Operand& from, Slab& slab) const {
#pragma unroll
    for (int f = 0; f < kFetched; ++f)
      from.put(slab, static_cast<int>(threadIdx.x) + f * kThreads, packs[f]);
  }
};

struct Sums {
  float at[kSums][kSums];  // [row][column]

  __device__ void add(const Slab& slab_a, const Slab& slab_b, int row, int column) {
    for (int k = 0; k < kDepth; ++k) {
      float a[kSums], b[kSums];
#pragma unroll
      for (int r = 0; r < kSums; ++r) a[r] = slab_a.at[k][row + r];
#pragma unroll
      for (int c = 0; c < kSums; ++c) b[c] = slab_b.at[k][column + c % 4 + c / 4 * kHalf];
#pragma unroll
      for (int c = 0; c < kSums; ++c)
#pragma unroll
        for (int r = 0; r < kSums; ++r) at[r][c] = multiply_add(a[r], b[c], at[r][c]);
    }
  }
};

__device__ void store_sums(const Product<float>& p, const Sums& sums, std::int64_t row,
                           std::int64_t column, bool packs) {
  for (int half = 0; half < 2; ++half) {
    const std::int64_t j = column + half * kHalf;
    for (int r = 0; r < kSums && row + r < p.c.rows; ++r) {
      float* const to = &p.c(row + r, 0);
      Pack<float, kPackSize> pack;
      for (int q = 0; q < kPackSize; ++q) {
        pack.at[q] = sums.at[r][half * kPackSize + q];
        if (j + q >= p.c.cols) continue;
        if (p.bias != nullptr) pack.at[q] += p.bias[j + q];
        if (p.store == Store::add) pack.at[q] += to[(j + q) * p.c.col_stride];
      }
      if (packs && j + kPackSize <= p.c.cols)
        store_pack(to + j, 0, pack);
      else
        for (int q = 0; q < kPackSize && j + q < p.c.cols; ++q)
          to[(j + q) * p.c.col_stride] = pack.at[q];
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    vectorised(Product<float> product, bool a_packs, bool b_packs, bool c_packs) {
  __shared__ Slab slab_a[2], slab_b[2];
  const int thread = static_cast<int>(threadIdx.x);
  const int my_row = thread / kAcross * kSums, my_column = thread % kAcross * 4;
  const std::int64_t row = std::int64_t{blockIdx.y} * kTile;
  const std::int64_t column = std::int64_t{blockIdx.x} * kTile;
  const std::int64_t depth = product.a.cols;
  for (std::int64_t batch = blockIdx.z; batch < product.batches; batch += gridDim.z) {
    Product<float> p = product;
    p.c.data += batch * p.c_batch;
    const Operand a{p.a.data + batch * p.a_batch, p.a.rows, p.a.row_stride, p.a.col_stride,
                    a_packs};
    const Operand b{p.b.data + batch * p.b_batch, p.b.cols, p.b.col_stride, p.b.row_stride,
                    b_packs};
    // Sums outside C are skipped, which matters if a CPU runs the threads one by one.
    const bool inside = row + my_row < p.c.rows && column + my_column < p.c.cols;
    Fetched next_a, next_b;
    Sums sums{};
    int half = 0;
    for (std::int64_t k = 0; k < depth; k += kDepth, half ^= 1) {
      if (k == 0) {
        next_a.fetch(a, row, 0, depth);
        next_b.fetch(b, column, 0, depth);
        next_a.put(a, slab_a[0]);
        next_b.put(b, slab_b[0]);
        __syncthreads();
      }
      const bool more = k + kDepth < depth;
      if (more) {
        next_a.fetch(a, row, k + kDepth, depth);
        next_b.fetch(b, column, k + kDepth, depth);
      }
      if (inside) sums.add(slab_a[half], slab_b[half], my_row, my_column);
      if (more) {
        next_a.put(a, slab_a[half ^ 1]);
        next_b.put(b, slab_b[half ^ 1]);
      }
      __syncthreads();
    }
    if (inside) store_sums(p, sums, row + my_row, column + my_column, c_packs);
  }
}

bool fits_packs(const void* data, std::int64_t stride, std::int64_t batch_stride) {
  return reinterpret_cast<std::uintptr_t>(data) % (kPackSize * sizeof(float)) == 0 &&
         stride % kPackSize == 0 && batch_stride % kPackSize == 0;
}

}  // namespace

void matmul_vectorised(const Product<float>& p) {
  if (p.c.rows * p.c.cols * p.batches == 0) return;
  const auto packs = [&](const auto& m, std::int64_t batch_stride) {
    return (m.col_stride == 1 && fits_packs(m.data, m.row_stride, batch_stride)) ||
           (m.row_stride == 1 && fits_packs(m.data, m.col_stride, batch_stride));
  };
  launch(vectorised, tile_grid(p.c.rows, p.c.cols, kTile, kTile, p.batches), kThreads, 0, stream(),
         p, packs(p.a, p.a_batch), packs(p.b, p.b_batch),
         p.c.col_stride == 1 && fits_packs(p.c.data, p.c.row_stride, p.c_batch));
}

}  // namespace ringsmith::kernels::cuda
