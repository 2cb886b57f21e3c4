// Matrix product, version 10: Hopper's tensor cores, which read shared memory themselves.
//
// In versions 8 and 9, warps load operands from shared memory into registers before each product,
// and compute the addresses of the copies that fill it. A Hopper device needs neither (wgmma.cuh):
//
//   TMA      one thread starts a copy of a whole slab by one instruction. The tensor map, which the
//            host has made, describes the matrix, so the device computes all addresses and writes
//            zeros where the slab ends outside of the matrix
//   wgmma    128 threads multiply 64 x 16 by 16 x 256 numbers of shared memory by one instruction.
//            Their registers hold nothing but sums
//   barriers in shared memory say when a slab has arrived and when it has been used. A thread waits
//            only for the slabs that it uses, whereas __syncthreads() waits for all threads
//
//   a block: 3 warpgroups, and always the only block of its multiprocessor
//
//     producer    one thread: for each step, waits until a stage is empty, then fills it
//     2 consumers 128 threads each: wait until a stage is full, multiply it, declare it empty
//
//        full[s]    1 arrival (the producer's) and the bytes of two slabs
//        empty[s]   2 arrivals, one of each consumer
//
//   a tile: 128 x 256 of C, a consumer has 64 x 256 of them, so a thread has 128 sums
//   a slab: 64 of k: 128 bytes, the longest row that a copy swizzles
//   stages: 4 of 48 KiB
//
// The producer needs few registers and gives the others to the consumers. Blocks take tiles in
// turn. While consumers store a tile, the producer already fills stages for the next. Tiles that
// are multiplied at the same time form a square of C rather than a row of tiles, so that blocks
// find each other's slabs in the L2 cache.
//
// Matrices are multiplied in place if a tensor map can describe them: one of the strides is 1, and
// the other stride and the address are multiples of 16 bytes. Other matrices, and floats, are first
// copied to dense matrices of bf16. Each element is one sum over k in float, in an order that
// depends only on k.
#include <cuda.h>

#include "kernels/cuda/dense_rows.cuh"
#include "kernels/cuda/matmul.hpp"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/wgmma.cuh"
#include "runtime/base/error.hpp"

namespace ringsmith::kernels::cuda {

namespace {

constexpr int kTileRows = 128, kTileColumns = 256, kDepth = 64, kStages = 4;
constexpr int kWarpgroup = 128, kBlock = 3 * kWarpgroup;
constexpr int kSlabA = kTileRows * kDepth, kSlabB = kTileColumns * kDepth;  // elements
constexpr int kStage = kSlabA + kSlabB;
constexpr int kBox = 64;                 // elements of a swizzled row
constexpr int kBoxSize = kBox * kDepth;  // elements, of 64 lines in either order
constexpr int kSwizzleBytes = 1024;      // the alignment that the swizzle needs
constexpr int kTogether = 16;            // rows of tiles that are multiplied at the same time
// Registers of a thread. The block is compiled for 168, and 40 + 2 x 232 is 3 x 168.
constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
// A warp stores its 16 rows through shared memory, 128 bytes of each at a time. The padding keeps
// the rows of a store by fragments in different banks.
constexpr int kStagedBytes = 128;
template <class Out>
constexpr int kStagedRow = (kStagedBytes + 8 * sizeof(Out)) / sizeof(Out);  // elements
constexpr int kStagingBytes = 8 * 16 * kStagedRow<float> * sizeof(float);
constexpr std::size_t kSharedBytes =
    kSwizzleBytes + kStages * kStage * sizeof(bf16) + kStagingBytes + 2 * kStages * sizeof(Barrier);

template <class Out>
struct Job {
  Matrix<Out> c;
  Store store;
  const Out* bias;
  std::int64_t depth, batches, c_batch;
  int rows_of_tiles, columns_of_tiles;
  bool a_batched, b_batched;  // the tensor map has a matrix for each of the batch
  bool packs;                 // C can be stored by packs of 16 bytes
};

struct Tile {
  std::int64_t batch;
  int row, column;
};

// Groups of kTogether rows of tiles; within a group, column after column.
template <class Out>
__device__ Tile tile_of(const Job<Out>& job, std::int64_t number) {
  const std::int64_t per_batch = std::int64_t{job.rows_of_tiles} * job.columns_of_tiles;
  const std::int64_t batch = number / per_batch;
  const int i = static_cast<int>(number - batch * per_batch);
  const int group = i / (kTogether * job.columns_of_tiles);
  const int in_group = i - group * kTogether * job.columns_of_tiles;
  const int rows = static_cast<int>(smaller(kTogether, job.rows_of_tiles - group * kTogether));
  return {batch, (group * kTogether + in_group % rows) * kTileRows, in_group / rows * kTileColumns};
}

// The stages' ring, as one warpgroup sees it.
struct Turn {
  int stage = 0, parity = 0;
  __device__ void next() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

// Fills `lines` x kDepth elements at `to`, from the line and k on.
template <bool along_k, int lines>
__device__ void copy_slab(bf16* to, const CUtensorMap& map, Barrier* full, int line, int k,
                          int batch) {
  if constexpr (along_k) {
    copy_box(to, map, full, k, line, batch);
  } else {
#pragma unroll
    for (int i = 0; i < lines / kBox; ++i)
      copy_box(to + i * kBoxSize, map, full, line + i * kBox, k, batch);
  }
}

// Describes 16 of k, from k on, of a slab's lines.
template <bool along_k>
__device__ std::uint64_t slab_matrix(const bf16* slab, int k) {
  constexpr int kRowBytes = kBox * sizeof(bf16), kGroupBytes = 8 * kRowBytes;
  return along_k ? matrix(slab + k, 0, kGroupBytes)
                 : matrix(slab + k * kBox, kBoxSize * static_cast<int>(sizeof(bf16)), kGroupBytes);
}

// Stores a consumer's 64 x kTileColumns of C from (row, column) on. `staging` is this warp's.
template <class Out>
__device__ void store(const Job<Out>& job, const Accumulators<kTileColumns>& sums, Out* c, int row,
                      int column, Out* staging) {
  constexpr int kChunk = kStagedBytes / static_cast<int>(sizeof(Out)), kRow = kStagedRow<Out>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int top = row + static_cast<int>(threadIdx.x) % kWarpgroup / kWarp * 16;
  const auto biased = [&](float sum, int at) {
    return job.bias != nullptr && at < job.c.cols ? sum + static_cast<float>(job.bias[at]) : sum;
  };
#pragma unroll
  for (int chunk = 0; chunk < kTileColumns / kChunk; ++chunk) {
    const int left = column + chunk * kChunk;
    __syncwarp();  // the chunk before has been read
#pragma unroll
    for (int block = 0; block < kChunk / 8; ++block)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = lane / 4 + 8 * half, q = 8 * block + lane % 4 * 2;
        const int of_sums = chunk * (kChunk / 8) + block;
        Pack<float, 2> two{{biased(sums(of_sums, half, 0), left + q),
                            biased(sums(of_sums, half, 1), left + q + 1)}};
        if (job.packs && job.store == Store::replace) {
          store_pack<2>(staging + r * kRow + q, 0, narrowed<Out>(two));
          continue;
        }
        for (int next = 0; next < 2; ++next) {
          if (top + r >= job.c.rows || left + q + next >= job.c.cols) continue;
          Out& to = c[(top + r) * job.c.row_stride + (left + q + next) * job.c.col_stride];
          to = Out(job.store == Store::add ? static_cast<float>(to) + two.at[next] : two.at[next]);
        }
      }
    __syncwarp();
    if (!job.packs || job.store != Store::replace) continue;
#pragma unroll
    for (int i = 0; i < 16 * kStagedBytes / 16 / kWarp; ++i) {
      const int r = lane / 8 + 4 * i, q = lane % 8 * kPack<Out>;
      if (top + r >= job.c.rows || left + q >= job.c.cols) continue;
      store_pack<kPack<Out>>(c + (top + r) * job.c.row_stride + left + q, 0,
                             load_pack<kPack<Out>>(staging + r * kRow + q, 0));
    }
  }
}

template <bool a_along_k, bool b_along_k, class Out>
__global__ void __launch_bounds__(kBlock, 1)
    hopper(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
           const __grid_constant__ Job<Out> job) {
  auto* const memory = dynamic_shared<std::byte>();
  const unsigned misaligned = shared_bits(memory) % kSwizzleBytes;
  auto* const stages =
      reinterpret_cast<bf16*>(memory + (misaligned == 0 ? 0 : kSwizzleBytes - misaligned));
  auto* const staging = reinterpret_cast<std::byte*>(stages + kStages * kStage);
  auto* const full = reinterpret_cast<Barrier*>(staging + kStagingBytes);
  Barrier* const empty = full + kStages;
  const int thread = static_cast<int>(threadIdx.x), warpgroup = thread / kWarpgroup;
  if (thread == 0) {
    for (int s = 0; s < kStages; ++s) {
      init_barrier(full + s, 1);
      init_barrier(empty + s, 2);
    }
    fence_async_proxy();
  }
  __syncthreads();
  const int steps = static_cast<int>(ceil_div(job.depth, kDepth));
  const std::int64_t tiles = std::int64_t{job.rows_of_tiles} * job.columns_of_tiles * job.batches;
  Turn turn;
  if (warpgroup == 0) {
    fewer_registers<kProducerRegisters>();
    if (thread != 0) return;
    for (std::int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
      const Tile tile = tile_of(job, t);
      const int a_batch = job.a_batched ? static_cast<int>(tile.batch) : 0;
      const int b_batch = job.b_batched ? static_cast<int>(tile.batch) : 0;
      for (int step = 0; step < steps; ++step, turn.next()) {
        wait(empty + turn.stage, turn.parity ^ 1);  // at first, of a phase before the first
        Barrier* const arrived = full + turn.stage;
        bf16* const stage = stages + turn.stage * kStage;
        expect_bytes(arrived, kStage * static_cast<int>(sizeof(bf16)));
        copy_slab<a_along_k, kTileRows>(stage, map_a, arrived, tile.row, step * kDepth, a_batch);
        copy_slab<b_along_k, kTileColumns>(stage + kSlabA, map_b, arrived, tile.column,
                                           step * kDepth, b_batch);
      }
    }
    return;
  }
  more_registers<kConsumerRegisters>();
  const int consumer = warpgroup - 1;
  const auto release = [&](int stage) {
    if (thread % kWarpgroup == 0) arrive(empty + stage);
  };
  auto* const my_staging =
      reinterpret_cast<Out*>(staging + (thread / kWarp - kWarpgroup / kWarp) * (kStagingBytes / 8));
  Accumulators<kTileColumns> sums;
  for (std::int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    int previous = 0;
    for (int step = 0; step < steps; ++step, turn.next()) {
      wait(full + turn.stage, turn.parity);
      const bf16* const a = stages + turn.stage * kStage + consumer * kBoxSize;
      const bf16* const b = stages + turn.stage * kStage + kSlabA;
      fence_multiply();
#pragma unroll
      for (int k = 0; k < kDepth; k += 16)
        multiply_async<!a_along_k, !b_along_k>(sums, slab_matrix<a_along_k>(a, k),
                                               slab_matrix<b_along_k>(b, k), step + k > 0);
      commit_multiply();
      // The stage of the step before has been read; this step's products are still being computed.
      wait_multiply<1>();
      if (step > 0) release(previous);
      previous = turn.stage;
    }
    finish_multiply(sums);
    release(previous);
    const Tile tile = tile_of(job, t);
    store(job, sums, job.c.data + tile.batch * job.c_batch, tile.row + consumer * kTileRows / 2,
          tile.column, my_staging);
  }
}

// ---- the host's part ----

using Encode = decltype(&cuTensorMapEncodeTiled);

#ifdef RINGSMITH_VGPU
Encode encoder() { return cuTensorMapEncodeTiled; }
#else
// Looked up at run time, because a program that is linked with the driver's library does not start
// where there is no driver.
Encode encoder() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  constexpr unsigned kSince = 12000;
#if CUDART_VERSION >= 12050
  cuda_check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, kSince,
                                              cudaEnableDefault, &result));
#else
  static_assert(CUDART_VERSION >= kSince);
  cuda_check(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result));
#endif
  if (result != cudaDriverEntryPointSuccess || found == nullptr)
    throw CudaError("cuTensorMapEncodeTiled: this driver does not have it; update the driver");
  return reinterpret_cast<Encode>(found);
}
#endif

// Matrices whose lines are the rows of `lines` (a, or b transposed).
struct Operand {
  Matrix<const bf16> lines;
  std::int64_t batch, batches;

  [[nodiscard]] bool along_k() const { return lines.col_stride == 1; }
  [[nodiscard]] std::int64_t stride() const {
    return along_k() ? lines.row_stride : lines.col_stride;
  }
  // The map of boxes of `box_lines` lines and kDepth of k.
  [[nodiscard]] CUtensorMap map(int box_lines) const {
    static const Encode encode = encoder();
    const auto size = [](std::int64_t n) { return static_cast<cuuint64_t>(n); };
    const std::int64_t inner = along_k() ? lines.cols : lines.rows;
    const std::int64_t outer = along_k() ? lines.rows : lines.cols;
    constexpr std::int64_t kBytes = sizeof(bf16);
    const cuuint64_t sizes[] = {size(inner), size(outer), size(batches)};
    const cuuint64_t strides[] = {size(stride() * kBytes),
                                  size((batches > 1 ? batch : stride() * outer) * kBytes)};
    const cuuint32_t box[] = {kBox, static_cast<cuuint32_t>(along_k() ? box_lines : kDepth), 1};
    const cuuint32_t ones[] = {1, 1, 1};
    CUtensorMap map{};
    const CUresult code =
        encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<bf16*>(lines.data), sizes,
               strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (code != CUDA_SUCCESS)
      throw CudaError("cuTensorMapEncodeTiled failed with code " + std::to_string(code) + " for " +
                      std::to_string(outer) + " rows of " + std::to_string(inner) + " elements, " +
                      std::to_string(stride()) + " apart");
    return map;
  }
};

// True if a tensor map can describe the matrices.
bool fits(const Matrix<const bf16>& m, std::int64_t batch_stride) {
  const bool by_rows = m.col_stride == 1;
  const std::int64_t other = by_rows ? m.row_stride : m.col_stride;
  constexpr int kUnit = 16 / sizeof(bf16);
  return (by_rows || m.row_stride == 1) && other >= (by_rows ? m.cols : m.rows) &&
         other % kUnit == 0 && batch_stride >= 0 && batch_stride % kUnit == 0 &&
         aligned_for(m.data, kUnit);
}

template <bool a_along_k, bool b_along_k, class Out>
void start(const Operand& a, const Operand& b, const Job<Out>& job) {
  constexpr auto kKernel = hopper<a_along_k, b_along_k, Out>;
  cuda_check(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(kSharedBytes)));
  int device = 0, multiprocessors = 0;
  cuda_check(cudaGetDevice(&device));
  cuda_check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  const std::int64_t tiles = std::int64_t{job.rows_of_tiles} * job.columns_of_tiles * job.batches;
  launch(kKernel, static_cast<unsigned>(std::min<std::int64_t>(tiles, multiprocessors)), kBlock,
         kSharedBytes, stream(), a.map(kTileRows), b.map(kTileColumns), job);
}

template <class Out>
void multiply(const Operand& a, const Operand& b, const Product<Out>& p) {
  constexpr int kUnit = kPack<Out>;
  Job<Out> job{};
  job.c = p.c;
  job.store = p.store;
  job.bias = p.bias;
  job.depth = p.a.cols;
  job.batches = p.batches;
  job.c_batch = p.c_batch;
  job.rows_of_tiles = static_cast<int>(ceil_div(p.c.rows, kTileRows));
  job.columns_of_tiles = static_cast<int>(ceil_div(p.c.cols, kTileColumns));
  job.a_batched = a.batches > 1;
  job.b_batched = b.batches > 1;
  job.packs = p.c.col_stride == 1 && p.c.row_stride % kUnit == 0 && p.c.cols % kUnit == 0 &&
              p.c_batch % kUnit == 0 && aligned_for(p.c.data, kUnit);
  if (a.along_k())
    b.along_k() ? start<true, true>(a, b, job) : start<true, false>(a, b, job);
  else
    b.along_k() ? start<false, true>(a, b, job) : start<false, false>(a, b, job);
}

// Calls use(operand) for m, or for a dense copy if a tensor map cannot describe m.
template <class T, class Use>
void with_operand(const Matrix<const T>& m, std::int64_t batch_stride, std::int64_t batches,
                  const Use& use) {
  const std::int64_t different = batch_stride == 0 ? 1 : batches;
  if constexpr (std::is_same_v<T, bf16>)
    if (fits(m, batch_stride)) return use(Operand{m, batch_stride, different});
  const DenseRows copy(m, batch_stride, batches);
  use(Operand{copy.matrix, copy.batch, different});
}

template <class T>
void run(const Product<T>& p) {
  require_wgmma();
  if (p.c.rows * p.c.cols * p.batches == 0) return;
  if (p.a.cols == 0) return matmul_pipelined(p, PipelineStages::four);  // no tensor map is empty
  with_operand(p.a, p.a_batch, p.batches, [&](const Operand& a) {
    with_operand(p.b.t(), p.b_batch, p.batches, [&](const Operand& b) { multiply(a, b, p); });
  });
}

}  // namespace

bool has_wgmma() {
#if defined(RINGSMITH_VGPU) || defined(RINGSMITH_SM90A)
  int device = 0, major = 0, minor = 0;
  cuda_check(cudaGetDevice(&device));
  cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  cuda_check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return major == 9 && minor == 0;
#else
  return false;
#endif
}

void require_wgmma() {
  require(has_wgmma(),
          "matmul version 10 needs compute capability 9.0 (Hopper) and code for sm_90a: use "
          "version 7 or 9");
}

void matmul_wgmma(const Product<float>& p) { run(p); }
void matmul_wgmma(const Product<bf16>& p) { run(p); }

}  // namespace ringsmith::kernels::cuda
