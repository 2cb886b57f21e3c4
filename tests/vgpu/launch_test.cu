// Tests kernels on the emulator: indices, barriers, warps, and blocks that wait for each other.
#include <cuda/atomic>
#include <numeric>
#include <vector>

#include "kernels/cuda/launch.hpp"
#include "tests/support/catch.hpp"
#include "tests/vgpu/support.hpp"

using namespace ringsmith;
using ringsmith::testing::DeviceArray;
using ringsmith::testing::TestStream;

namespace {

__global__ void write_index(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + thread] = block * threads + thread;
}

// Reverses the block's part of x through shared memory, twice.
__global__ void reverse_twice(int* x) {
  __shared__ int tile[1024];
  int* copy = dynamic_shared<int>();
  const unsigned i = threadIdx.x, n = blockDim.x, at = blockIdx.x * n + i;
  for (int turn = 0; turn < 2; ++turn) {
    tile[i] = x[at];
    __syncthreads();
    copy[n - 1 - i] = tile[i];
    __syncthreads();
    x[at] = copy[i] + 1;
    __syncthreads();
  }
}

__global__ void warp_sum(const int* x, int* sum, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  int s = i < n ? x[i] : 0;
  for (int d = 16; d > 0; d /= 2) s += __shfl_down_sync(0xffffffffU, s, static_cast<unsigned>(d));
  if (i % 32 == 0) sum[i / 32] = s;
}

// Every block waits for the one before it.
__global__ void chain(unsigned* turn, unsigned* order) {
  cuda::atomic_ref<unsigned, cuda::thread_scope_device> t(*turn);
  if (threadIdx.x == 0)
    while (t.load(cuda::memory_order_acquire) != blockIdx.x) __nanosleep(100);
  __syncthreads();
  if (threadIdx.x == 0) {
    order[blockIdx.x] = blockIdx.x;
    t.store(blockIdx.x + 1, cuda::memory_order_release);
  }
}

}  // namespace

TEST_CASE("every thread of every block runs once, whatever the shape") {
  TestStream stream;
  for (const dim3 grid : {dim3(1), dim3(7), dim3(3, 2), dim3(2, 3, 4)})
    for (const dim3 block : {dim3(1), dim3(31), dim3(32), dim3(33), dim3(1024), dim3(8, 4, 3)}) {
      const std::size_t n = std::size_t{grid.x} * grid.y * grid.z * block.x * block.y * block.z;
      DeviceArray<unsigned> out(n);
      launch(write_index, grid, block, 0, stream.get(), out.data());
      std::vector<unsigned> want(n);
      std::iota(want.begin(), want.end(), 0U);
      REQUIRE(out.host(stream.get()) == want);
    }
}

TEST_CASE("a stream is destroyed when its grid has ended, though a helper may not have begun") {
  // The grid has enough threads for a helper, which may wake up only after all blocks are done. In
  // that case, the helper must not access the stream (AddressSanitizer would detect this).
  const unsigned blocks = 16, threads = 1024;
  DeviceArray<unsigned> out(std::size_t{blocks} * threads);
  std::vector<unsigned> want(std::size_t{blocks} * threads);
  std::iota(want.begin(), want.end(), 0U);
  for (int turn = 0; turn < 100; ++turn) {
    TestStream stream;
    launch(write_index, blocks, threads, 0, stream.get(), out.data());
    if (turn % 10 == 9) REQUIRE(out.host(stream.get()) == want);
  }
}

TEST_CASE("__syncthreads at odd block sizes") {
  TestStream stream;
  for (const unsigned threads : {1U, 2U, 31U, 32U, 33U, 100U, 1000U, 1024U}) {
    const unsigned blocks = 5;
    std::vector<int> x(blocks * threads);
    std::iota(x.begin(), x.end(), 0);
    DeviceArray<int> device(x, stream.get());
    launch(reverse_twice, blocks, threads, threads * sizeof(int), stream.get(), device.data());
    for (int& v : x) v += 2;
    REQUIRE(device.host(stream.get()) == x);
  }
}

TEST_CASE("a warp sums by shuffles") {
  TestStream stream;
  std::vector<int> x(256);
  std::iota(x.begin(), x.end(), 1);
  DeviceArray<int> in(x, stream.get()), out(8);
  launch(warp_sum, 2, 128, 0, stream.get(), in.data(), out.data(), 256U);
  std::vector<int> want(8);
  for (std::size_t i = 0; i < x.size(); ++i) want[i / 32] += x[i];
  CHECK(out.host(stream.get()) == want);
}

TEST_CASE("blocks that wait for each other all run at once") {
  TestStream stream;
  const unsigned blocks = 40;
  DeviceArray<unsigned> turn(std::vector<unsigned>{0}, stream.get()), order(blocks);
  launch(chain, blocks, 64, 0, stream.get(), turn.data(), order.data());
  std::vector<unsigned> want(blocks);
  std::iota(want.begin(), want.end(), 0U);
  CHECK(order.host(stream.get()) == want);
}

TEST_CASE("a bad launch is refused with its reason") {
  TestStream stream;
  DeviceArray<unsigned> out(1);
  CHECK_THROWS_WITH(launch(write_index, 0, 1, 0, stream.get(), out.data()),
                    ContainsSubstring("cudaErrorInvalidConfiguration"));
  CHECK_THROWS_WITH(launch(write_index, 1, 1025, 0, stream.get(), out.data()),
                    ContainsSubstring("cudaErrorInvalidConfiguration"));
}
