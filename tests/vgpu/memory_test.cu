// Tests device memory, pinned memory, and copies between them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/vgpu/support.hpp"

using namespace ringsmith;
using ringsmith::testing::DeviceArray;
using ringsmith::testing::TestStream;

TEST_CASE("memory is aligned to 256 bytes, fresh memory is NaN, and the counters agree") {
  TestStream stream;
  std::size_t before = 0, now = 0, total = 0;
  cuda_check(cudaMemGetInfo(&before, &total));
  for (const std::size_t n : {1U, 3U, 255U, 256U, 257U, 4095U, 4096U, 4097U, 1U << 20, 5U << 20}) {
    DeviceArray<float> x(n);
    CHECK(reinterpret_cast<std::uintptr_t>(x.data()) % 256 == 0);
    cuda_check(cudaMemGetInfo(&now, &total));
    CHECK(before - now == n * sizeof(float));
    const auto fresh = x.host(stream.get());
    CHECK(std::all_of(fresh.begin(), fresh.end(), [](float v) { return std::isnan(v); }));
  }
  cuda_check(cudaMemGetInfo(&now, &total));
  CHECK(now == before);
}

TEST_CASE("too much memory is refused, with what is left") {
  std::size_t left = 0, total = 0;
  cuda_check(cudaMemGetInfo(&left, &total));
  void* p = nullptr;
  CHECK(cudaMalloc(&p, left + 1) == cudaErrorMemoryAllocation);
  CHECK(p == nullptr);
  CHECK_THROWS_WITH(cuda_check(cudaMalloc(&p, left + 1)), ContainsSubstring("VGPU_MEMORY_MB"));
  cuda_check(cudaMalloc(&p, 0));
  CHECK(p == nullptr);
}

TEST_CASE("an address is not given out twice in a row") {
  void *first = nullptr, *second = nullptr;
  cuda_check(cudaMalloc(&first, 1000));
  cuda_check(cudaFree(first));
  cuda_check(cudaMalloc(&second, 1000));
  CHECK(first != second);
  cuda_check(cudaFree(second));
  CHECK(cudaFree(first) == cudaErrorInvalidValue);
}

TEST_CASE("copies: host, device, peer, rows") {
  TestStream stream;
  std::vector<int> values(1000);
  std::iota(values.begin(), values.end(), 0);
  DeviceArray<int> here(values, stream.get());
  cuda_check(cudaSetDevice(1));
  DeviceArray<int> there(1000);
  cuda_check(cudaSetDevice(0));
  cuda_check(cudaMemcpyPeerAsync(there.data(), 1, here.data(), 0, 4000, stream.get()));
  CHECK(there.host(stream.get()) == values);
  cuda_check(
      cudaMemcpyAsync(here.data() + 500, there.data(), 2000, cudaMemcpyDefault, stream.get()));
  const auto shifted = here.host(stream.get());
  for (std::size_t i = 0; i < 500; ++i) REQUIRE(shifted[500 + i] == static_cast<int>(i));
  // columns 2 to 4 of a 10 x 100 matrix
  std::vector<int> columns(30);
  cuda_check(cudaMemcpy2DAsync(columns.data(), 12, there.data() + 2, 400, 12, 10,
                               cudaMemcpyDeviceToHost, stream.get()));
  stream.synchronize();
  for (int r = 0; r < 10; ++r)
    for (int c = 0; c < 3; ++c) REQUIRE(columns[std::size_t(3 * r + c)] == 100 * r + 2 + c);
}

TEST_CASE("copies beyond an allocation, or of the wrong kind, are refused with the reason") {
  TestStream stream;
  std::vector<int> host(100);
  DeviceArray<int> x(100);
  const auto copy = [&](std::size_t bytes, cudaMemcpyKind kind) {
    cuda_check(cudaMemcpyAsync(x.data(), host.data(), bytes, kind, stream.get()));
  };
  CHECK_THROWS_WITH(copy(401, cudaMemcpyHostToDevice),
                    ContainsSubstring("do not fit in the target"));
  CHECK_THROWS_WITH(copy(400, cudaMemcpyDeviceToHost),
                    ContainsSubstring("the kind says that the target is host memory"));
  CHECK_NOTHROW(copy(400, cudaMemcpyHostToDevice));
  stream.synchronize();
}

TEST_CASE("pinned memory: allocated or registered, known by its pointer") {
  TestStream stream;
  int* pinned = nullptr;
  cuda_check(cudaHostAlloc(&pinned, 4000, cudaHostAllocPortable));
  cudaPointerAttributes attributes{};
  cuda_check(cudaPointerGetAttributes(&attributes, pinned + 5));
  CHECK(attributes.type == cudaMemoryTypeHost);
  cuda_check(cudaFreeHost(pinned));

  std::vector<int> plain(1000);
  cuda_check(cudaPointerGetAttributes(&attributes, plain.data()));
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
  int* on_device = nullptr;
  CHECK(cudaHostGetDevicePointer(&on_device, plain.data(), 0) == cudaErrorInvalidValue);
  cuda_check(cudaHostRegister(plain.data(), 4000, cudaHostRegisterMapped));
  cuda_check(cudaHostGetDevicePointer(&on_device, plain.data(), 0));
  cuda_check(cudaMemsetAsync(on_device, 1, 4000, stream.get()));
  stream.synchronize();
  CHECK(plain[999] == 0x01010101);
  CHECK(cudaHostRegister(plain.data() + 10, 4, cudaHostRegisterDefault) ==
        cudaErrorHostMemoryAlreadyRegistered);
  cuda_check(cudaHostUnregister(plain.data()));
  CHECK(cudaHostUnregister(plain.data()) == cudaErrorHostMemoryNotRegistered);
  DeviceArray<int> x(4);
  cuda_check(cudaPointerGetAttributes(&attributes, x.data()));
  CHECK(attributes.type == cudaMemoryTypeDevice);
  CHECK(attributes.device == 0);
}

TEST_CASE("devices of one machine have different names for different devices, always the same") {
  cudaDeviceProp a{}, b{}, again{};
  cuda_check(cudaGetDeviceProperties(&a, 0));
  cuda_check(cudaGetDeviceProperties(&b, 1));
  cuda_check(cudaGetDeviceProperties(&again, 0));
  CHECK(std::memcmp(&a.uuid, &b.uuid, sizeof a.uuid) != 0);
  CHECK(std::memcmp(&a.uuid, &again.uuid, sizeof a.uuid) == 0);
  CHECK(a.warpSize == 32);
}
