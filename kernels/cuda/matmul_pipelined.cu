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
// A step has 32 mma of a warp, which keep a tensor core of an H100 busy for 128 cycles. Addresses
// and bounds could take longer (they once took 267 instructions). So there is a kernel for each
// storage order of A and B, a thread adds a distance to its addresses instead of computing them,
// and slabs that consist of whole packs are copied without checks. `make nvcc-check` counts a
// step's instructions.
//
// If operands do not fit packs of 16 bytes (a misaligned view, an odd stride), they are stored
// element by element into the same slabs. Operands of float are first rounded to dense bf16
// matrices. Each element is one sum over k in float, in an order that depends only on the shape.
#include "kernels/cuda/dense_rows.cuh"
#include "kernels/cuda/matmul.hpp"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/pack.cuh"
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

// A or B. Element k of line i is data[i * line_stride + k * k_stride]. A line is a row of A or a
// column of B. Lines are along k if k_stride is 1. If `packs`, one of the strides is 1, and pieces
// of kCopy elements are aligned for cp.async.
struct Operand {
  const bf16* data;
  std::int64_t lines, depth, line_stride, k_stride;
  bool along_k, packs;
};

// A slab of an operand in shared memory: [line][k], or [k][line] if the lines are not along k.
template <bool along_k>
struct Slab {
  static constexpr int kStride = (along_k ? kDepth : kTile) + kCopy;
  static constexpr int kSize = (along_k ? kTile : kDepth) * kStride;

  __device__ static constexpr int place(int line, int k) {
    return along_k ? line * kStride + k : k * kStride + line;
  }

  // The first element of this thread's copy c.
  __device__ static int line(int c) {
    const int e = static_cast<int>(threadIdx.x) + c * kThreads;
    return along_k ? e / (kDepth / kCopy) : e % (kTile / kCopy) * kCopy;
  }
  __device__ static int k(int c) {
    const int e = static_cast<int>(threadIdx.x) + c * kThreads;
    return along_k ? e % (kDepth / kCopy) * kCopy : e / (kTile / kCopy);
  }

  // Returns the start of this lane's row, for an ldmatrix that loads the matrices (0, 0), (8, 0),
  // (0, 8) and (8, 8) of (line, k) or, if k_first, (0, 0), (0, 8), (8, 0) and (8, 8).
  __device__ static int lane_place(bool k_first) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, r = lane % 8, m = lane / 8;
    const int line = (k_first ? m / 2 : m % 2) * 8, k = (k_first ? m % 2 : m / 2) * 8;
    return along_k ? place(line + r, k) : place(line, k + r);
  }
  // Loads these matrices from (line, k) on. `from` is a slab's lane_place().
  template <int line, int k>
  __device__ static void load(std::uint32_t (&to)[4], const bf16* from) {
    constexpr int kBytes = place(line, k) * static_cast<int>(sizeof(bf16));
    if constexpr (along_k)
      load_matrices<kBytes>(to, from);
    else
      load_matrices_transposed<kBytes>(to, from);
  }
};
constexpr int kSlab = std::max(Slab<true>::kSize, Slab<false>::kSize);

// This thread's copies of an operand, slab after slab.
template <bool along_k>
class Copies {
 public:
  // Copies the lines from `first` on of `data`, a matrix of the operand's batch.
  __device__ Copies(const Operand& operand, const bf16* data, std::int64_t first)
      : operand_(operand), data_(data), first_(first) {
#pragma unroll
    for (int c = 0; c < kCopies; ++c) {
      // Lines beyond the last are replaced by the last ones, because their sums are not stored.
      const std::int64_t last = operand.lines - (along_k ? 1 : kCopy);
      const std::int64_t line = smaller(first + Slab::line(c), last);
      next_[c] = data + line * operand.line_stride + Slab::k(c) * operand.k_stride;
    }
  }

  // The number of slabs, from k = 0 on, that consist of whole packs.
  __device__ std::int64_t whole() const {
    const bool lines = along_k || operand_.lines % kCopy == 0 || first_ + kTile <= operand_.lines;
    return operand_.packs && lines ? operand_.depth / kDepth : 0;
  }

  // Starts the copies of the next slab, which consists of whole packs. Each address is the previous
  // one plus a distance.
  __device__ void start(bf16* slab) {
#pragma unroll
    for (int c = 0; c < kCopies; ++c) {
      copy_async(slab + Slab::place(Slab::line(c), Slab::k(c)), next_[c], 16);
      next_[c] += along_k ? kDepth : kDepth * operand_.k_stride;
    }
  }

  // Starts the copies of any slab, from k0 on. Elements outside the operand become 0. Without
  // packs, the copies are complete on return.
  __device__ void start_any(bf16* slab, std::int64_t k0) const {
#pragma unroll 1
    for (int c = 0; c < kCopies; ++c) {
      const int i = Slab::line(c), k = Slab::k(c);
      bf16* const to = slab + Slab::place(i, k);
      const std::int64_t lines_left = operand_.lines - first_ - i, k_left = operand_.depth - k0 - k;
      const std::int64_t here = lines_left <= 0 || k_left <= 0 ? 0 : along_k ? k_left : lines_left;
      const int count = static_cast<int>(smaller(here, kCopy));
      const bf16* const from =
          data_ + (first_ + i) * operand_.line_stride + (k0 + k) * operand_.k_stride;
      if (operand_.packs) {
        copy_async(to, count > 0 ? from : data_, count * static_cast<int>(sizeof(bf16)));
      } else {
        const std::int64_t step = along_k ? operand_.k_stride : operand_.line_stride;
#pragma unroll 1
        for (int q = 0; q < kCopy; ++q) {
          to[q].bits = 0;
          if (q < count) to[q] = from[q * step];
        }
      }
    }
  }

 private:
  using Slab = cuda::Slab<along_k>;

  const Operand& operand_;  // the kernel's argument: in constant memory, not in registers
  const bf16* data_;
  std::int64_t first_;
  const bf16* next_[kCopies];
};

template <class Out>
struct Job {
  Operand a, b;
  Matrix<Out> c;
  Store store;
  const Out* bias;
  std::int64_t batches, a_batch, b_batch, c_batch;
};

template <int stages, bool a_along_k, bool b_along_k, class Out>
__global__ void __launch_bounds__(kThreads) pipelined(Job<Out> job) {
  using SlabA = Slab<a_along_k>;
  using SlabB = Slab<b_along_k>;
  constexpr int kStage = 2 * kSlab;            // A's slab and B's
  auto* const slabs = dynamic_shared<bf16>();  // [stage][kStage]
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int warp_row = warp / (kTile / kWarpColumns) * kWarpRows;
  const int warp_column = warp % (kTile / kWarpColumns) * kWarpColumns;
  const std::int64_t row = std::int64_t{blockIdx.y} * kTile;
  const std::int64_t column = std::int64_t{blockIdx.x} * kTile;
  const std::int64_t steps = ceil_div(job.a.depth, kDepth);
  const bool inside = row + warp_row < job.c.rows && column + warp_column < job.c.cols;
  const int lane_a = SlabA::place(warp_row, 0) + SlabA::lane_place(false);
  const int lane_b = SlabB::place(warp_column, 0) + SlabB::lane_place(true) + kSlab;
  for (std::int64_t batch = blockIdx.z; batch < job.batches; batch += gridDim.z) {
    Copies<a_along_k> a(job.a, job.a.data + batch * job.a_batch, row);
    Copies<b_along_k> b(job.b, job.b.data + batch * job.b_batch, column);
    const std::int64_t whole = smaller(a.whole(), b.whole());
    const auto fetch = [&](std::int64_t step, bf16* stage) {
      if (step < whole) {
        a.start(stage);
        b.start(stage + kSlab);
      } else if (step < steps) {
        a.start_any(stage, step * kDepth);
        b.start_any(stage + kSlab, step * kDepth);
      }
      commit_copies();  // even if empty, because the wait counts groups
    };
    float sums[kDown][kBeside][4] = {};
#pragma unroll 1
    for (int s = 0; s < stages - 1; ++s) fetch(s, slabs + s * kStage);
    bf16* stage = slabs;                             // of this step
    bf16* previous = slabs + (stages - 1) * kStage;  // of the step before
#pragma unroll 1
    for (std::int64_t step = 0; step < steps; ++step) {
      wait_for_copies<stages - 2>();
      __syncthreads();
      fetch(step + stages - 1, previous);
      if (inside)
        each_constant<kDepth / 16>([&](auto half) {
          constexpr int kK = 16 * decltype(half)::value;
          std::uint32_t left[kDown][4], right[kBeside / 2][4];
          each_constant<kDown>([&](auto i) {
            SlabA::template load<16 * decltype(i)::value, kK>(left[i], stage + lane_a);
          });
          each_constant<kBeside / 2>([&](auto j) {
            SlabB::template load<16 * decltype(j)::value, kK>(right[j], stage + lane_b);
          });
#pragma unroll
          for (int i = 0; i < kDown; ++i)
#pragma unroll
            for (int j = 0; j < kBeside; ++j) {
              const std::uint32_t(&two)[4] = right[j / 2];
              multiply_fragments(sums[i][j], left[i], {two[j % 2 * 2], two[j % 2 * 2 + 1]});
            }
        });
      previous = stage;
      stage = stage == slabs + (stages - 1) * kStage ? slabs : stage + kStage;
    }
    // Only empty groups are still in flight. But the next matrix of a batch overwrites stages that
    // other warps may still be reading.
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kDown; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const std::int64_t r = row + warp_row + 16 * i + lane / 4 + h * 8;
        if (r >= job.c.rows) continue;
        Out* const line = job.c.data + batch * job.c_batch + r * job.c.row_stride;
#pragma unroll
        for (int j = 0; j < kBeside; ++j)
#pragma unroll
          for (int q = 0; q < 2; ++q) {
            const std::int64_t c = column + warp_column + 8 * j + lane % 4 * 2 + q;
            if (c >= job.c.cols) continue;
            float sum = sums[i][j][2 * h + q];
            if (job.bias != nullptr) sum += static_cast<float>(job.bias[c]);
            Out& to = line[c * job.c.col_stride];
            to = Out(job.store == Store::add ? static_cast<float>(to) + sum : sum);
          }
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

template <int stages, bool a_along_k, bool b_along_k, class Out>
void start(const Job<Out>& job) {
  constexpr std::size_t kBytes = stages * 2 * kSlab * sizeof(bf16);
  constexpr auto kKernel = pipelined<stages, a_along_k, b_along_k, Out>;
  if constexpr (kBytes > std::size_t{48} << 10)
    cuda_check(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(kBytes)));
  dim3 grid = tile_grid(job.c.rows, job.c.cols, kTile, kTile, job.batches);
  grid.z = std::min(grid.z, kMostBatches);
  launch(kKernel, grid, kThreads, kBytes, stream(), job);
}
template <int stages, class Out>
void start(const Job<Out>& job) {
  if (job.a.along_k)
    job.b.along_k ? start<stages, true, true>(job) : start<stages, true, false>(job);
  else
    job.b.along_k ? start<stages, false, true>(job) : start<stages, false, false>(job);
}

template <int stages>
void run(const Product<bf16>& p) {
  if (p.c.rows * p.c.cols * p.batches == 0) return;
  start<stages>(Job<bf16>{operand(p.a, p.a_batch), operand(p.b.t(), p.b_batch), p.c, p.store,
                          p.bias, p.batches, p.a_batch, p.b_batch, p.c_batch});
}

template <int stages>
void run(const Product<float>& p) {
  if (p.c.rows * p.c.cols * p.batches == 0) return;
  const DenseRows a(p.a, p.a_batch, p.batches), b(p.b, p.b_batch, p.batches);
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
