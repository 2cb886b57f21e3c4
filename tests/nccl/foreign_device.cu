// A program for nvcc alone: device functions, groups and memory that only other people's programs
// use (api/foreign_*.hpp, cooperative_groups.h, cuda/barrier, cuda/pipeline, mma.h).
#include <cmath>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cstdio>
#include <cstring>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_fp16.h>
#include <limits>
#include <mma.h>
#include <utility>

namespace cg = cooperative_groups;

#define CHECK(good)                                  \
  do {                                               \
    if (!(good)) {                                   \
      std::printf("line %d: %s\n", __LINE__, #good); \
      return 1;                                      \
    }                                                \
  } while (0)

// In a kernel: counts the mistake in *wrong.
#define EXPECT(good)                                                         \
  do {                                                                       \
    if (!(good)) {                                                           \
      std::printf("line %d, thread %u: %s\n", __LINE__, threadIdx.x, #good); \
      atomicAdd(wrong, 1);                                                   \
    }                                                                        \
  } while (0)

__constant__ float factors[4];
__device__ int counter;
__managed__ int shared_by_all = 5;

// ---- functions ----

__global__ void numbers(int* wrong) {
  EXPECT(__mul24(-3, 1 << 23) == 3 << 23 && __umul24(0xff000002U, 5) == 10);
  EXPECT(__mulhi(1 << 30, -8) == -2 && __mul64hi(1LL << 62, 4) == 1);
  EXPECT(__sad(-2, 5, 1) == 8 && __usad(2, 5, 1) == 4 && __vsadu4(0x01ff0003U, 0x02000001U) == 258);
  EXPECT(__brev(1) == 0x80000000U && __brevll(2) == 1ULL << 62);
  EXPECT(__byte_perm(0x33221100U, 0x77665544U, 0x7531) == 0x77553311U);
  EXPECT(__byte_perm(0x80U, 0, 0x8888) == 0xffffffffU);
  EXPECT(__funnelshift_l(0x80000000U, 1, 1) == 3 && __funnelshift_r(1, 1, 1) == 0x80000000U);
  EXPECT(umin(1, 0xffffffffU) == 1 && max(1.0F, 2.0) == 2.0 && min(-1, 1U) == 1U);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT(__saturatef(2) == 1 && __saturatef(-2) == 0 && __saturatef(nan) == 0 &&
         max(nan, 1.0F) == 1);
  // 1 + 2^-24 lies between two floats.
  const float tiny = 0x1p-24F, next = 1 + 0x1p-23F;
  EXPECT(__fadd_rd(1, tiny) == 1 && __fadd_ru(1, tiny) == next && __fadd_rz(-1, -tiny) == -1);
  EXPECT(__fdiv_rd(1, 3) < __fdiv_ru(1, 3) && __fmul_ru(tiny, 0x1p-149F) == 0x1p-149F);
  EXPECT(__dsqrt_rd(2) < __dsqrt_ru(2) && __ddiv_rd(1, 3) < __ddiv_ru(1, 3));
  EXPECT(1 + tiny == 1);  // and the direction is restored
  EXPECT(__float2int_rn(2.5F) == 2 && __float2int_rz(-2.7F) == -2 && __float2int_ru(2.1F) == 3);
  EXPECT(__float2int_rn(1e20F) == 0x7fffffff && __float2int_rd(-1e20F) == -0x7fffffff - 1);
  EXPECT(__float2int_rz(nan) == 0 && __float2uint_rz(-1) == 0 && __double2uint_rn(5e9) == ~0U);
  EXPECT(__float2ll_rz(9.3e18F) == std::numeric_limits<long long>::max());
  EXPECT(__hiloint2double(__double2hiint(1.5), __double2loint(1.5)) == 1.5);
  const half2 a = __floats2half2_rn(1, 2), b = __float2half2_rn(0.5F), c = __hfma2(a, b, a);
  EXPECT(__low2float(c) == 1.5F && __high2float(c) == 3.0F && __low2float(__hadd2(a, b)) == 1.5F);
  EXPECT(__hgt(a.y, a.x) && __hmax(a.x, a.y) == a.y);
  float3 vector = make_float3(1, 2, 3);
  EXPECT(vector.z == 3 && sizeof(uchar3) == 3 && sizeof(float3) == 12 && sizeof(ulong4) == 32);
}

__global__ void warps(int* wrong) {
  const unsigned lane = threadIdx.x % 32, all = 0xffffffffU;
  EXPECT(__match_any_sync(all, lane / 4) == 15U << (lane / 4 * 4));
  int same = -1;
  EXPECT(__match_all_sync(all, 7, &same) == all && same == 1);
  EXPECT(__match_all_sync(all, lane, &same) == 0 && same == 0);
  EXPECT(__reduce_add_sync(all, lane) == 496 &&
         __reduce_max_sync(all, static_cast<int>(lane)) == 31);
  EXPECT(__reduce_min_sync(all, -static_cast<int>(lane)) == -31 &&
         __reduce_xor_sync(all, lane) == 0);
  EXPECT((__activemask() >> lane & 1) == 1);
  unsigned id = 99, below = 99, highest = 99;
  asm("mov.u32 %0, %%laneid;" : "=r"(id));
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
  asm volatile("bfind.u32 %0, %1;" : "=r"(highest) : "r"(lane + 1));
  EXPECT(id == lane && below == (1U << lane) - 1 &&
         highest == 31U - static_cast<unsigned>(__clz(static_cast<int>(lane + 1))));
  __shared__ int sum;
  __shared__ long long least;
  if (threadIdx.x == 0) sum = 0, least = 0;
  __syncthreads();
  atomicAdd_block(&sum, 1);
  atomicAdd_system(&sum, 1);
  atomicMin(&least, -static_cast<long long>(threadIdx.x));
  __syncthreads();
  EXPECT(sum == 2 * static_cast<int>(blockDim.x) && least == 1 - static_cast<int>(blockDim.x));
}

// ---- groups ----

__device__ unsigned long long sum_of(cg::thread_group group, unsigned long long* scratch) {
  scratch[group.thread_rank()] = group.thread_rank();
  group.sync();
  unsigned long long sum = 0;
  for (unsigned long long i = 0; i < group.size(); ++i) sum += scratch[i];
  group.sync();
  return sum;
}

__global__ void groups(int* wrong) {
  __shared__ unsigned long long scratch[128];
  cg::thread_block block = cg::this_thread_block();
  EXPECT(sum_of(block, scratch) == 127 * 64);
  const auto tile = cg::tiled_partition<8>(block);
  EXPECT(sum_of(tile, scratch + block.thread_rank() / 8 * 8) == 28);
  EXPECT(sum_of(cg::tiled_partition(block, 4), scratch + block.thread_rank() / 4 * 4) == 6);
  const auto warp = cg::tiled_partition<32>(block);
  const auto lane = static_cast<int>(warp.thread_rank());
  const auto thirds = cg::labeled_partition(warp, lane % 3);
  EXPECT(thirds.size() == (lane % 3 == 2 ? 10U : 11U));
  EXPECT(thirds.thread_rank() == static_cast<unsigned>(lane) / 3);
  EXPECT(cg::reduce(thirds, lane, cg::greater<int>()) == (lane % 3 == 0   ? 30
                                                          : lane % 3 == 1 ? 31
                                                                          : 29));
  EXPECT(thirds.shfl(lane, 1) == lane % 3 + 3);
  EXPECT(thirds.ballot(lane < 6) == 3);
  const auto odd = cg::binary_partition(warp, lane % 2 == 1);
  EXPECT(cg::reduce(odd, 1, cg::plus<int>()) == 16);
  EXPECT(cg::inclusive_scan(warp, 1) == lane + 1 && cg::exclusive_scan(warp, 2) == 2 * lane);
  const cg::coalesced_group active = cg::coalesced_threads();
  EXPECT(active.size() >= 1 && active.shfl(lane, active.thread_rank()) == lane);
  // A tile of two warps: no barrier of the block.
  __shared__ cg::block_tile_memory<128> memory;
  const auto wide = cg::tiled_partition<64>(cg::this_thread_block(memory));
  if (wide.meta_group_rank() == 0) {
    for (int i = 0; i < 3; ++i)
      EXPECT(cg::reduce(wide, static_cast<int>(wide.thread_rank()), cg::plus<int>()) == 63 * 32);
  }
}

// Every block adds to the next block's number after each meeting of the grid.
__global__ void rounds(int* numbers, int* wrong) {
  const cg::grid_group grid = cg::this_grid();
  EXPECT(grid.is_valid() && grid.size() == gridDim.x * blockDim.x);
  for (int round = 0; round < 5; ++round) {
    if (threadIdx.x == 0) numbers[(blockIdx.x + 1) % gridDim.x] += static_cast<int>(blockIdx.x);
    grid.sync();
    if (threadIdx.x == 0)
      EXPECT(numbers[blockIdx.x] ==
             (round + 1) * static_cast<int>((blockIdx.x + gridDim.x - 1) % gridDim.x));
    grid.sync();
  }
}

// ---- copies ----

__global__ void copies(const float* from, int* wrong) {
  __shared__ alignas(alignof(float4)) float slab[256], piece[2][256];
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  const auto block = cg::this_thread_block();
  cg::memcpy_async(block, slab, from, sizeof slab);
  cg::wait(block);
  EXPECT(slab[255 - threadIdx.x] == 255 - threadIdx.x);
  block.sync();
  if (threadIdx.x == 0) init(&barrier, blockDim.x);
  block.sync();
  for (int round = 0; round < 3; ++round) {
    cuda::memcpy_async(&slab[threadIdx.x], &from[threadIdx.x + 64 * round], sizeof(float), barrier);
    barrier.arrive_and_wait();
    EXPECT(slab[63 - threadIdx.x] == 63 - threadIdx.x + 64 * round);
    auto token = barrier.arrive();
    barrier.wait(std::move(token));
  }
  // One thread's pipeline of two stages.
  cuda::pipeline<cuda::thread_scope_thread> own = cuda::make_pipeline();
  const auto bytes = cuda::aligned_size_t<16>(16);
  for (int stage = 0; stage < 2; ++stage) {
    own.producer_acquire();
    if (threadIdx.x < 16)
      cuda::memcpy_async(&piece[stage][4 * threadIdx.x], &from[64 * stage + 4 * threadIdx.x], bytes,
                         own);
    own.producer_commit();
  }
  cuda::pipeline_consumer_wait_prior<1>(own);
  block.sync();
  EXPECT(piece[0][threadIdx.x] == threadIdx.x);
  own.consumer_wait();
  cuda::pipeline_consumer_wait_prior<0>(own);
  block.sync();
  EXPECT(piece[1][threadIdx.x] == 64 + threadIdx.x);
  block.sync();
  // The first warp produces, the second consumes.
  const bool produces = threadIdx.x < 32;
  auto pipe = cuda::make_pipeline(
      block, &state, produces ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
  for (int i = 0; i < 5; ++i) {
    if (produces) {
      pipe.producer_acquire();
      cuda::memcpy_async(&piece[i % 2][threadIdx.x], &from[32 * i + threadIdx.x], sizeof(float),
                         pipe);
      pipe.producer_commit();
    } else {
      pipe.consumer_wait();
      EXPECT(piece[i % 2][63 - threadIdx.x] == 32 * i + 63 - threadIdx.x);
      pipe.consumer_release();
    }
  }
}

template <class In, class Out, class Layout>
__global__ void product(const In* a, const In* b, Out* d) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, In, row_major> fa;
  fragment<matrix_b, 16, 16, 16, In, Layout> fb;
  fragment<accumulator, 16, 16, 16, Out> fc;
  load_matrix_sync(fa, a, 16);
  load_matrix_sync(fb, b, 16);
  load_matrix_sync(fc, d, 16, mem_row_major);
  mma_sync(fc, fa, fb, fc);
  store_matrix_sync(d, fc, 16, mem_row_major);
}

template <class In, class Out, class Layout>
int check_product(bool by_columns) {
  In *a = nullptr, *b = nullptr;
  Out* d = nullptr;
  CHECK(cudaMallocManaged(&a, 256 * sizeof(In)) == cudaSuccess);
  CHECK(cudaMallocManaged(&b, 256 * sizeof(In)) == cudaSuccess);
  CHECK(cudaMallocManaged(&d, 256 * sizeof(Out)) == cudaSuccess);
  for (int i = 0; i < 256; ++i) a[i] = In(i % 5), b[i] = In(i % 7), d[i] = Out(i % 3);
  product<In, Out, Layout><<<1, 32>>>(a, b, d);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  for (int i = 0; i < 256; ++i) {
    int sum = i % 3;
    for (int k = 0; k < 16; ++k)
      sum += (i / 16 * 16 + k) % 5 * ((by_columns ? i % 16 * 16 + k : k * 16 + i % 16) % 7);
    CHECK(static_cast<int>(static_cast<float>(d[i])) == sum);
  }
  CHECK(cudaFree(a) == cudaSuccess && cudaFree(b) == cudaSuccess && cudaFree(d) == cudaSuccess);
  return 0;
}

// ---- memory ----

__global__ void use_symbols(float* out) {
  out[threadIdx.x] = factors[threadIdx.x];
  atomicAdd(&counter, 2);
  atomicAdd(&shared_by_all, 1);
}
__global__ void add(int* x, int n) { *x += n; }
__global__ void far(int* out) {
  extern __shared__ int large[][256];
  large[50][threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  *out = large[50][255];
}
// A kernel that launches kernels ends after them.
__global__ void parent(int* x, int depth) {
  if (depth > 0) parent<<<1, 1>>>(x, depth - 1);
  add<<<1, 1>>>(x, 1);
}

int memory() {
  const float values[4] = {1, 2, 3, 4};
  float* out = nullptr;
  CHECK(cudaMallocManaged(&out, sizeof values) == cudaSuccess);
  CHECK(cudaMemcpyToSymbol(factors, values, sizeof values) == cudaSuccess);
  CHECK(cudaMemcpyToSymbol(factors, values, 8, 12) == cudaErrorInvalidValue);
  int zero = 0, seen = -1;
  CHECK(cudaMemcpyToSymbol(counter, &zero, sizeof zero) == cudaSuccess);
  use_symbols<<<1, 4>>>(out);
  CHECK(cudaMemcpyFromSymbol(&seen, counter, sizeof seen) == cudaSuccess && seen == 8);
  CHECK(cudaDeviceSynchronize() == cudaSuccess && out[3] == 4 && shared_by_all == 9);
  void* address = nullptr;
  std::size_t size = 0;
  CHECK(cudaGetSymbolAddress(&address, counter) == cudaSuccess);
  CHECK(cudaGetSymbolSize(&size, factors) == cudaSuccess && size == 16);
  CHECK(cudaMemset(address, 0, sizeof(int)) == cudaSuccess &&
        cudaDeviceSynchronize() == cudaSuccess);
  CHECK(counter == 0);
  // The devices share a symbol, so they may only write the same bytes.
  CHECK(cudaSetDevice(1) == cudaSuccess);
  CHECK(cudaMemcpyToSymbol(factors, values, sizeof values) == cudaSuccess);
  const float others[4] = {5, 6, 7, 8};
  CHECK(cudaSetDevice(0) == cudaSuccess);
  CHECK(cudaMemcpyToSymbol(factors, others, sizeof others) == cudaErrorNotSupported);
  (void)cudaGetLastError();

  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, out) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeManaged);
  CHECK(cudaMemAdvise(out, 16, cudaMemAdviseSetPreferredLocation, 0) == cudaSuccess);
  CHECK(cudaMemAdvise(out, 17, cudaMemAdviseSetPreferredLocation, 0) == cudaErrorInvalidValue);
  CHECK(cudaMemPrefetchAsync(out, 16, cudaCpuDeviceId) == cudaSuccess);
  CHECK(cudaMemPrefetchAsync(values, 16, 0) == cudaErrorInvalidValue);
  CHECK(cudaFree(out) == cudaSuccess && cudaFree(out) != cudaSuccess);

  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreate(&stream) == cudaSuccess);
  int *x = nullptr, *rows = nullptr;
  CHECK(cudaMallocAsync(&x, sizeof *x, stream) == cudaSuccess);
  CHECK(cudaMemsetAsync(x, 0, sizeof *x, stream) == cudaSuccess);
  add<<<1, 1, 0, stream>>>(x, 3);
  CHECK(cudaMemcpyAsync(&seen, x, sizeof seen, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  CHECK(cudaFreeAsync(x, stream) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess && seen == 3);
  CHECK(cudaFreeAsync(x, stream) == cudaErrorInvalidValue);
  cudaMemPool_t pool = nullptr;
  CHECK(cudaDeviceGetDefaultMemPool(&pool, 1) == cudaSuccess);
  CHECK(cudaMallocFromPoolAsync(&x, 64, pool, stream) == cudaErrorInvalidValue);
  (void)cudaGetLastError();

  std::size_t pitch = 0;
  CHECK(cudaMallocPitch(&rows, &pitch, 12, 3) == cudaSuccess && pitch == 512);
  CHECK(cudaMemset2D(rows, pitch, 7, 12, 3) == cudaSuccess);
  unsigned char back[36] = {};
  CHECK(cudaMemcpy2D(back, 12, rows, pitch, 12, 3, cudaMemcpyDeviceToHost) == cudaSuccess);
  for (const unsigned char byte : back) CHECK(byte == 7);
  CHECK(cudaMemset(rows, 0, 4) == cudaSuccess);
  parent<<<1, 1, 0, stream>>>(rows, 3);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(cudaMemcpy(&seen, rows, 4, cudaMemcpyDeviceToHost) == cudaSuccess && seen == 4);
  return 0;
}

int launches(int* wrong) {
  int* numbers_ = nullptr;
  CHECK(cudaMallocManaged(&numbers_, 8 * sizeof(int)) == cudaSuccess);
  std::memset(numbers_, 0, 8 * sizeof(int));
  void* arguments[] = {&numbers_, &wrong};
  CHECK(cudaLaunchCooperativeKernel((void*)rounds, 8, 64, arguments) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess && *wrong == 0);
  CHECK(cudaLaunchCooperativeKernel((void*)rounds, 1000, 1024, arguments) ==
        cudaErrorCooperativeLaunchTooLarge);
  (void)cudaGetLastError();
  far<<<1, 256, 60 << 10>>>(numbers_);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(far, cudaFuncAttributeMaxDynamicSharedMemorySize, 60 << 10) ==
        cudaSuccess);
  far<<<1, 256, 60 << 10>>>(numbers_);
  CHECK(cudaDeviceSynchronize() == cudaSuccess && *numbers_ == 255);
  int grid = 0, block = 0;
  CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, rounds) == cudaSuccess);
  CHECK(block > 0 && block <= 1024 && grid > 0);
  CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, rounds, 0, 100) == cudaSuccess);
  CHECK(block <= 100);
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 1) == cudaSuccess);
  CHECK(properties.warpSize == 32 && properties.cooperativeLaunch == 1 &&
        properties.concurrentKernels == 1);
  return 0;
}

int main() {
  int* wrong = nullptr;
  float* line = nullptr;
  CHECK(cudaMallocManaged(&wrong, sizeof *wrong) == cudaSuccess);
  CHECK(cudaMallocManaged(&line, 256 * sizeof *line) == cudaSuccess);
  *wrong = 0;
  for (int i = 0; i < 256; ++i) line[i] = static_cast<float>(i);
  numbers<<<1, 1>>>(wrong);
  warps<<<2, 64>>>(wrong);
  groups<<<2, 128>>>(wrong);
  copies<<<2, 64>>>(line, wrong);
  CHECK(cudaDeviceSynchronize() == cudaSuccess && *wrong == 0);
  using namespace nvcuda::wmma;
  CHECK((check_product<half, float, row_major>(false) == 0));
  CHECK((check_product<half, half, col_major>(true) == 0));
  CHECK((check_product<signed char, int, col_major>(true) == 0));
  CHECK((check_product<double, double, row_major>(false) == 0));
  CHECK(launches(wrong) == 0 && memory() == 0);
  std::printf("foreign_device: all as promised\n");
  return 0;
}
