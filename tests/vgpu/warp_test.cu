// Tests shuffles, votes, atomics and barriers that count.
#include <cmath>
#include <cuda/atomic>
#include <numeric>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/vgpu/support.hpp"

using namespace ringsmith;
using ringsmith::testing::DeviceArray;
using ringsmith::testing::TestStream;

namespace {

constexpr unsigned kAll = 0xffffffffU;

// Row r of out: the results of shuffle number r for 32 lanes, whose values are 100 + lane.
__global__ void shuffles(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  const int value = 100 + lane;
  out[lane] = __shfl_sync(kAll, value, 5);
  out[32 + lane] = __shfl_sync(kAll, value, 5, 8);
  out[64 + lane] = __shfl_up_sync(kAll, value, 3);
  out[96 + lane] = __shfl_down_sync(kAll, value, 3, 16);
  out[128 + lane] = __shfl_xor_sync(kAll, value, 9);
}

__global__ void votes(unsigned* out, int n) {
  const unsigned i = threadIdx.x;
  const bool odd = i % 2 == 1;
  const unsigned ballot = __ballot_sync(kAll, odd);
  const int any = __any_sync(kAll, static_cast<int>(i) == n),
            all = __all_sync(kAll, static_cast<int>(i) < n);
  if (i == 0)
    out[0] = ballot, out[1] = static_cast<unsigned>(any), out[2] = static_cast<unsigned>(all);
}

// The halves of a warp execute different code, each with its own mask.
__global__ void halves(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  int v = lane;
  if (lane < 16) {
    for (int d = 8; d > 0; d /= 2) v += __shfl_xor_sync(0x0000ffffU, v, d);
  } else {
    for (int d = 8; d > 0; d /= 2) v = max(v, __shfl_xor_sync(0xffff0000U, v, d));
    __syncwarp(0xffff0000U);
  }
  out[lane] = v;
}

// Lanes leave one by one, and the remaining lanes still synchronize.
__global__ void leaving(int* out) {
  const unsigned lane = threadIdx.x;
  for (unsigned turn = 0; turn < lane; ++turn) out[lane] = static_cast<int>(__ballot_sync(kAll, 1));
}

__global__ void count(unsigned* counter, float* sum, unsigned* largest, int* last) {
  atomicAdd(counter, 1U);
  atomicAdd(sum, 0.5F);
  atomicMax(largest, blockIdx.x * blockDim.x + threadIdx.x);
  if (threadIdx.x == 0 && atomicInc(counter + 1, gridDim.x - 1) == gridDim.x - 1) *last = 1;
}

__global__ void lock_and_add(int* lock, int* x) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  cuda::atomic_thread_fence(cuda::memory_order_acquire, cuda::thread_scope_device);
  *x += 1;
  cuda::atomic_thread_fence(cuda::memory_order_release, cuda::thread_scope_device);
  atomicExch(lock, 0);
}

__global__ void counted(int* out) {
  out[3 * threadIdx.x] = __syncthreads_count(threadIdx.x % 3 == 0);
  out[3 * threadIdx.x + 1] = __syncthreads_and(threadIdx.x < 10);
  out[3 * threadIdx.x + 2] = __syncthreads_or(threadIdx.x == 10);
}

}  // namespace

TEST_CASE("shuffles read the lane that CUDA says") {
  TestStream stream;
  DeviceArray<int> out(160);
  launch(shuffles, 1, 32, 0, stream.get(), out.data());
  const auto got = out.host(stream.get());
  for (int lane = 0; lane < 32; ++lane) {
    const auto at = [&](int row) { return got[static_cast<std::size_t>(32 * row + lane)] - 100; };
    CHECK(at(0) == 5);
    CHECK(at(1) == lane / 8 * 8 + 5);
    CHECK(at(2) == (lane < 3 ? lane : lane - 3));
    CHECK(at(3) == (lane % 16 < 13 ? lane + 3 : lane));
    CHECK(at(4) == (lane ^ 9));
  }
}

TEST_CASE("votes, in whole warps and in one that is not full") {
  TestStream stream;
  DeviceArray<unsigned> out(3);
  launch(votes, 1, 32, 0, stream.get(), out.data(), 31);
  CHECK(out.host(stream.get()) == std::vector<unsigned>{0xaaaaaaaaU, 1, 0});
  launch(votes, 1, 20, 0, stream.get(), out.data(), 20);
  CHECK(out.host(stream.get()) == std::vector<unsigned>{0x000aaaaaU, 0, 1});
}

TEST_CASE("parts of a warp meet on their own; lanes that have left are not waited for") {
  TestStream stream;
  DeviceArray<int> out(32);
  launch(halves, 1, 32, 0, stream.get(), out.data());
  const auto got = out.host(stream.get());
  for (std::size_t lane = 0; lane < 32; ++lane) CHECK(got[lane] == (lane < 16 ? 120 : 31));
  launch(leaving, 1, 32, 0, stream.get(), out.data());
  CHECK(static_cast<unsigned>(out.host(stream.get())[31]) == 0x80000000U);
}

TEST_CASE("barriers that count") {
  TestStream stream;
  for (const unsigned threads : {10U, 11U, 64U}) {
    DeviceArray<int> out(3 * threads);
    launch(counted, 1, threads, 0, stream.get(), out.data());
    const auto got = out.host(stream.get());
    for (std::size_t t = 0; t < threads; ++t) {
      CHECK(got[3 * t] == static_cast<int>((threads + 2) / 3));
      CHECK(got[3 * t + 1] == (threads <= 10 ? 1 : 0));
      CHECK(got[3 * t + 2] == (threads > 10 ? 1 : 0));
    }
  }
}

TEST_CASE("atomics between blocks and streams; a lock of the oldest kind") {
  TestStream first, second;
  DeviceArray<unsigned> counters(std::vector<unsigned>{0, 0}, first.get()),
      largest(std::vector<unsigned>{0}, first.get());
  DeviceArray<float> sum(std::vector<float>{0}, first.get());
  DeviceArray<int> last(std::vector<int>{0}, first.get()), lock(std::vector<int>{0}, first.get()),
      x(std::vector<int>{0}, first.get());
  launch(count, 50, 100, 0, first.get(), counters.data(), sum.data(), largest.data(), last.data());
  CHECK(counters.host(first.get()) == std::vector<unsigned>{5000, 0});
  CHECK(sum.host(first.get())[0] == 2500);
  CHECK(largest.host(first.get())[0] == 4999);
  CHECK(last.host(first.get())[0] == 1);
  for (const TestStream* s : {&first, &second})
    launch(lock_and_add, 20, 3, 0, s->get(), lock.data(), x.data());
  second.synchronize();
  CHECK(x.host(first.get())[0] == 120);
}
