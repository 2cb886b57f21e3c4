// Matrix product, versions 8 and 9: tensor cores that do not wait for memory.
//
// Versions 5 and 6 load a slab, wait, multiply it, and wait again. Here slabs are in flight while
// others are multiplied, and they do not pass through registers:
//
//   cp.async   a thread starts copies of 16 bytes from memory directly into shared memory, in
//              groups. A slab is a group, and a thread waits only for its oldest group
//   stages     shared memory holds S slabs: one is multiplied while S - 1 are in flight. Version 8
//              has S = 2 (double buffering), version 9 has S = 4. A slab must arrive within S - 1
//              products of 128 x 128 x 32. A single product takes less time than a load from busy
//              memory
//   ldmatrix   loads four 8 x 8 matrices of a slab into the registers of a warp by one instruction,
//              transposed on request, so A and B may be stored by rows or by columns
//   mma        16 x 8 x 16 products in those registers. Their layout is documented (mma.cuh), so
//              sums are stored directly, not through shared memory as in version 6
//
//   S = 4, step k      wait for slab k | barrier | start slab k + 3, multiply slab k
//   stage  k % 4       slab k, complete
//   (k + 1) % 4        slab k + 1, in flight
//   (k + 2) % 4        slab k + 2, in flight
//   (k + 3) % 4        slab k - 1, read in the step before, replaced by slab k + 3
//
// The single barrier of a step has two purposes. It makes slab k visible to all threads, after each
// has waited for its own copies. It also ensures that all threads have read slab k - 1 before its
// stage is reused.
//
//   a block: 128 x 128 of C by 8 warps, each 64 x 32 = 4 x 4 tiles of 16 x 8
//   a slab:  32 of k. Rows of shared memory are 16 bytes longer than their data, so that the 8 rows
//            of an ldmatrix are in different banks
//
// If operands do not fit packs of 16 bytes (a misaligned view, an odd stride), they are stored
// element by element into the same slabs. Operands of float are first rounded to dense bf16
// matrices. Each element is one sum over k in float, in an order that depends only on the shape.
#include "kernels/cuda/matmul.hpp"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/scratch.hpp"
#include "kernels/cuda/strided.cuh"
#include "runtime/base/error.hpp"

namespace ringsmith::kernels::cuda {

namespace {

constexpr int kTile = 128, kDepth = 32;           // of C, and of k
constexpr int kWarpRows = 64, kWarpColumns = 32;  // of C, per warp
constexpr int kDown = kWarpRows / 16, kBeside = kWarpColumns / 8;
constexpr unsigned kMostBatches = 1024;                     // blocks in z: enough for any device
constexpr int kCopy = 8;                                    // elements per cp.async
constexpr int kCopies = kTile * kDepth / kCopy / kThreads;  // per operand, thread and slab

// A slab of an operand: [line][k], or [k][line] if lines are adjacent in memory. A line is a row of
// A or a column of B.
constexpr int kAlongK = kDepth + kCopy, kAcrossK = kTile + kCopy;  // row strides
constexpr int kSlab = kTile * kAlongK;
static_assert(kDepth * kAcrossK <= kSlab);

// A or B. Element k of line i is data[i * line_stride + k * k_stride]. If `packs`, one of these
// strides is 1.
struct Operand {
  const bf16* data;
  std::int64_t lines, depth, line_stride, k_stride;
  bool along_k, packs;

  // Starts this thread's copies for a slab of lines from `first` on and k from k0 on. Without
  // packs, the copies are complete on return.
  __device__ void fetch(bf16* slab, std::int64_t first, std::int64_t k0) const {
#pragma unroll
    for (int c = 0; c < kCopies; ++c) {
      const int e = static_cast<int>(threadIdx.x) + c * kThreads;
      const int i = along_k ? e / (kDepth / kCopy) : e % (kTile / kCopy) * kCopy;
      const int k = along_k ? e % (kDepth / kCopy) * kCopy : e / (kTile / kCopy);
      bf16* const to = slab + (along_k ? i * kAlongK + k : k * kAcrossK + i);
      const std::int64_t lines_left = lines - first - i, k_left = depth - k0 - k;
      const std::int64_t here = lines_left <= 0 || k_left <= 0 ? 0 : along_k ? k_left : lines_left;
      const int count = static_cast<int>(smaller(here, kCopy));
      const bf16* const from = data + (first + i) * line_stride + (k0 + k) * k_stride;
      if (packs) {
        copy_async(to, count > 0 ? from : data, count * static_cast<int>(sizeof(bf16)));
      } else {
        const std::int64_t step = along_k ? k_stride : line_stride;
        for (int q = 0; q < kCopy; ++q) {
          to[q].bits = 0;
          if (q < count) to[q] = from[q * step];
        }
      }
    }
  }
};

// The fragment of A for rows `row` to row + 15 and k to k + 15.
__device__ void load_a(std::uint32_t (&a)[4], const bf16* slab, bool along_k, int row, int k) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, r = lane % 8, m = lane / 8;
  // Matrix m is at row 8 (m % 2), k 8 (m / 2). Its row r is a row of A or, if not along_k, one k.
  if (along_k)
    load_matrices(a, slab + (row + m % 2 * 8 + r) * kAlongK + k + m / 2 * 8);
  else
    load_matrices_transposed(a, slab + (k + m / 2 * 8 + r) * kAcrossK + row + m % 2 * 8);
}
// The two fragments of B for columns `column` to column + 15 and k to k + 15.
__device__ void load_b(std::uint32_t (&b)[2][2], const bf16* slab, bool along_k, int column,
                       int k) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, r = lane % 8, m = lane / 8;
  // Matrix m is at column 8 (m / 2), k 8 (m % 2).
  std::uint32_t both[4];
  if (along_k)
    load_matrices(both, slab + (column + m / 2 * 8 + r) * kAlongK + k + m % 2 * 8);
  else
    load_matrices_transposed(both, slab + (k + m % 2 * 8 + r) * kAcrossK + column + m / 2 * 8);
  b[0][0] = both[0];
  b[0][1] = both[1];
  b[1][0] = both[2];
  b[1][1] = both[3];
}

template <class Out>
struct Job {
  Operand a, b;
  Matrix<Out> c;
  Store store;
  const Out* bias;
  std::int64_t batches, a_batch, b_batch, c_batch;
};

template <int stages, class Out>
__global__ void __launch_bounds__(kThreads) pipelined(Job<Out> job) {
  auto* const slabs = dynamic_shared<bf16>();  // [stage][operand][kSlab]
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int warp_row = warp / (kTile / kWarpColumns) * kWarpRows;
  const int warp_column = warp % (kTile / kWarpColumns) * kWarpColumns;
  const std::int64_t row = std::int64_t{blockIdx.y} * kTile;
  const std::int64_t column = std::int64_t{blockIdx.x} * kTile;
  const std::int64_t steps = ceil_div(job.a.depth, kDepth);
  const bool inside = row + warp_row < job.c.rows && column + warp_column < job.c.cols;
  for (std::int64_t batch = blockIdx.z; batch < job.batches; batch += gridDim.z) {
    Operand a = job.a, b = job.b;
    a.data += batch * job.a_batch;
    b.data += batch * job.b_batch;
    const auto fetch = [&](std::int64_t step) {
      bf16* const stage = slabs + step % stages * 2 * kSlab;
      if (step < steps) {
        a.fetch(stage, row, step * kDepth);
        b.fetch(stage + kSlab, column, step * kDepth);
      }
      commit_copies();  // even if empty, because the wait counts groups
    };
    float sums[kDown][kBeside][4] = {};
    for (int s = 0; s < stages - 1; ++s) fetch(s);
    for (std::int64_t step = 0; step < steps; ++step) {
      wait_for_copies<stages - 2>();
      __syncthreads();
      fetch(step + stages - 1);
      if (!inside) continue;
      const bf16* const slab_a = slabs + step % stages * 2 * kSlab;
      const bf16* const slab_b = slab_a + kSlab;
#pragma unroll
      for (int k = 0; k < kDepth; k += 16) {
        std::uint32_t left[kDown][4], right[kBeside / 2][2][2];
#pragma unroll
        for (int i = 0; i < kDown; ++i) load_a(left[i], slab_a, a.along_k, warp_row + 16 * i, k);
#pragma unroll
        for (int j = 0; j < kBeside / 2; ++j)
          load_b(right[j], slab_b, b.along_k, warp_column + 16 * j, k);
#pragma unroll
        for (int i = 0; i < kDown; ++i)
#pragma unroll
          for (int j = 0; j < kBeside; ++j)
            multiply_fragments(sums[i][j], left[i], right[j / 2][j % 2]);
      }
    }
    // Only empty groups are still in flight. But the next matrix of a batch overwrites stages that
    // other warps may still be reading.
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kDown; ++i)
#pragma unroll
      for (int j = 0; j < kBeside; ++j)
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          const std::int64_t r = row + warp_row + 16 * i + lane / 4 + q / 2 * 8;
          const std::int64_t c = column + warp_column + 8 * j + lane % 4 * 2 + q % 2;
          if (r >= job.c.rows || c >= job.c.cols) continue;
          float sum = sums[i][j][q];
          if (job.bias != nullptr) sum += static_cast<float>(job.bias[c]);
          Out& to = job.c.data[batch * job.c_batch + r * job.c.row_stride + c * job.c.col_stride];
          to = Out(job.store == Store::add ? static_cast<float>(to) + sum : sum);
        }
  }
}

// The operand whose lines are the rows of `lines` (a, or b transposed).
Operand operand(const Matrix<const bf16>& lines, std::int64_t batch_stride) {
  const bool along_k = lines.col_stride == 1 || lines.row_stride != 1;
  const std::int64_t unit = along_k ? lines.col_stride : lines.row_stride;
  const std::int64_t other = along_k ? lines.row_stride : lines.col_stride;
  return {lines.data,
          lines.rows,
          lines.cols,
          lines.row_stride,
          lines.col_stride,
          along_k,
          unit == 1 && aligned_for(lines.data, kCopy) && other % kCopy == 0 &&
              batch_stride % kCopy == 0};
}

template <int stages, class Out>
void start(const Job<Out>& job) {
  constexpr std::size_t kBytes = stages * 2 * kSlab * sizeof(bf16);
  if constexpr (kBytes > std::size_t{48} << 10)
    cuda_check(cudaFuncSetAttribute(pipelined<stages, Out>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(kBytes)));
  dim3 grid = tile_grid(job.c.rows, job.c.cols, kTile, kTile, job.batches);
  grid.z = std::min(grid.z, kMostBatches);
  launch(pipelined<stages, Out>, grid, kThreads, kBytes, stream(), job);
}

template <int stages>
void run(const Product<bf16>& p) {
  if (p.c.rows * p.c.cols * p.batches == 0) return;
  start<stages>(Job<bf16>{operand(p.a, p.a_batch), operand(p.b.t(), p.b_batch), p.c, p.store,
                          p.bias, p.batches, p.a_batch, p.b_batch, p.c_batch});
}

// A separate function, because nvcc accepts no device lambda in a constructor.
void round_rows(const Matrix<const float>& from, std::int64_t batch_stride, std::int64_t count,
                std::int64_t stride, bf16* to) {
  for_each(from.rows * from.cols * count, [=] __device__(std::int64_t i) {
    std::int64_t rest = i;
    const std::int64_t c = take_digit(rest, from.cols), r = take_digit(rest, from.rows);
    to[(rest * from.rows + r) * stride + c] =
        bf16(from.data[rest * batch_stride + r * from.row_stride + c * from.col_stride]);
  });
}

// The rounded matrices of a batch, one after another, with rows padded to a multiple of 8 elements.
struct Rounded {
  Matrix<const bf16> matrix;
  std::int64_t batch;
  Scratch<bf16> memory;

  // The rows run along whichever dimension is contiguous in m.
  Rounded(const Matrix<const float>& m, std::int64_t batch_stride, std::int64_t batches)
      : batch(rounded_up(by_columns(m) ? m.rows : m.cols) * (by_columns(m) ? m.cols : m.rows)),
        memory(std::max<std::int64_t>(batch * (batch_stride == 0 ? 1 : batches), 1)) {
    const bool turned = by_columns(m);
    const Matrix<const float> from = turned ? m.t() : m;
    const std::int64_t stride = rounded_up(from.cols);
    const std::int64_t count = batch_stride == 0 ? 1 : batches;
    bf16* const to = memory.data();
    round_rows(from, batch_stride, count, stride, to);
    matrix = {to, from.rows, from.cols, stride, 1};
    if (turned) matrix = matrix.t();
    if (batch_stride == 0) batch = 0;
  }

 private:
  static bool by_columns(const Matrix<const float>& m) {
    return m.row_stride == 1 && m.col_stride != 1;
  }
  static std::int64_t rounded_up(std::int64_t n) { return ceil_div(n, kCopy) * kCopy; }
};

template <int stages>
void run(const Product<float>& p) {
  if (p.c.rows * p.c.cols * p.batches == 0) return;
  const Rounded a(p.a, p.a_batch, p.batches), b(p.b, p.b_batch, p.batches);
  start<stages>(Job<float>{operand(a.matrix, a.batch), operand(b.matrix.t(), b.batch), p.c, p.store,
                           p.bias, p.batches, a.batch, b.batch, p.c_batch});
}

}  // namespace

void matmul_pipelined(const Product<float>& p, PipelineStages stages) {
  require_tensor_cores();
  stages == PipelineStages::two ? run<2>(p) : run<4>(p);
}
void matmul_pipelined(const Product<bf16>& p, PipelineStages stages) {
  require_tensor_cores();
  stages == PipelineStages::two ? run<2>(p) : run<4>(p);
}

}  // namespace ringsmith::kernels::cuda
