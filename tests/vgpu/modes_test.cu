// Tests the settings that change how the emulator behaves. Each runs in a separate process, because
// settings are read only once.
#include <cstdio>
#include <cuda/atomic>
#include <filesystem>
#include <string>
#include <thread>

#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"
#include "tests/vgpu/support.hpp"

using namespace ringsmith;
using ringsmith::testing::DeviceArray;
using ringsmith::testing::ProgramResult;
using ringsmith::testing::TestStream;

namespace {

using Flag = cuda::atomic_ref<int, cuda::thread_scope_system>;

__global__ void set_flag(int* flag, int value) {
  Flag(*flag).store(value, cuda::memory_order_release);
}
__global__ void wait_for_flag(int* flag, int value, int polls) {
  while (polls-- != 0 && Flag(*flag).load(cuda::memory_order_acquire) != value) __nanosleep(100);
}
// All blocks wait until all have arrived.
__global__ void meet(int* arrived) {
  Flag(*arrived).fetch_add(1, cuda::memory_order_acq_rel);
  while (Flag(*arrived).load(cuda::memory_order_acquire) != static_cast<int>(gridDim.x)) {
  }
}

ProgramResult run_case(const std::string& name, const std::string& setting) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  return testing::run_program({"env", "VGPU_DEADLINE_MS=1000", setting, self, name});
}

}  // namespace

TEST_CASE("a launch beside a kernel that waits for it", "[.][blocking]") {
  const TestStream first, second;
  const DeviceArray<int> flag(std::vector<int>{0}, first.get());
  launch(wait_for_flag, 1, 1, 0, first.get(), flag.data(), 1, -1);
  launch(set_flag, 1, 1, 0, second.get(), flag.data(), 1);
}
TEST_CASE("a launch and a query", "[.][finished]") {
  const TestStream stream;
  const DeviceArray<int> flag(std::vector<int>{0}, stream.get());
  launch(wait_for_flag, 1, 1, 0, stream.get(), flag.data(), 1, 20);
  CHECK(cudaStreamQuery(stream.get()) == cudaSuccess);
}
TEST_CASE("with VGPU_LAUNCH_BLOCKING a launch returns when its kernel has ended") {
  CHECK(run_case("[blocking]", "VGPU_LAUNCH_BLOCKING=0").exit_code == 0);
  const ProgramResult stuck = run_case("[blocking]", "VGPU_LAUNCH_BLOCKING=1");
  CHECK(stuck.exit_code == 2);
  CHECK_THAT(stuck.err, ContainsSubstring("wait_for_flag") && ContainsSubstring("spins forever"));
  const ProgramResult finished = run_case("[finished]", "VGPU_LAUNCH_BLOCKING=1");
  INFO(finished.out << finished.err);
  CHECK(finished.exit_code == 0);
}

TEST_CASE("eight blocks meet", "[.][resident]") {
  const TestStream stream;
  const DeviceArray<int> arrived(std::vector<int>{0}, stream.get());
  int blocks = 0, multiprocessors = 0;
  cuda_check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, meet, 1, 0));
  cuda_check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  std::printf("%d blocks\n", blocks * multiprocessors);
  std::fflush(stdout);  // the emulator may end the process
  launch(meet, 8, 1, 0, stream.get(), arrived.data());
  stream.synchronize();
}
TEST_CASE("with VGPU_RESIDENT blocks wait for a multiprocessor") {
  CHECK_THAT(run_case("[resident]", "VGPU_RESIDENT=0").out, ContainsSubstring("128 blocks"));
  const ProgramResult fits = run_case("[resident]", "VGPU_RESIDENT=2");
  CHECK(fits.exit_code == 0);
  CHECK_THAT(fits.out, ContainsSubstring("8 blocks"));
  const ProgramResult stuck = run_case("[resident]", "VGPU_RESIDENT=1");
  CHECK(stuck.exit_code == 2);
  CHECK_THAT(stuck.out, ContainsSubstring("4 blocks"));
  CHECK_THAT(stuck.err, ContainsSubstring("meet") && ContainsSubstring("spins forever"));
}

TEST_CASE("a kernel asks for 100 KiB of shared memory", "[.][shared]") {
  cuda_check(cudaFuncSetAttribute(meet, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));
}
TEST_CASE("VGPU_SHARED_KB is the most shared memory of a block") {
  CHECK(run_case("[shared]", "VGPU_SHARED_KB=163").exit_code == 0);
  const ProgramResult small = run_case("[shared]", "VGPU_SHARED_KB=99");
  CHECK(small.exit_code != 0);
  CHECK_THAT(small.out + small.err, ContainsSubstring("VGPU_SHARED_KB"));
}

TEST_CASE("an occupancy is asked of possible blocks only; a kernel's attributes are its limits") {
  int blocks = -1;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, meet, 256, 0) == cudaSuccess);
  CHECK(blocks == 8);
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, meet, 1025, 0) ==
        cudaErrorInvalidValue);
  CHECK(blocks == 0);
  cudaFuncAttributes attributes{};
  CHECK(cudaFuncGetAttributes(&attributes, meet) == cudaSuccess);
  CHECK(attributes.maxThreadsPerBlock == 1024);
  CHECK(cudaFuncGetAttributes(&attributes, static_cast<const void*>(nullptr)) ==
        cudaErrorInvalidDeviceFunction);
  (void)cudaGetLastError();
}

TEST_CASE("no devices", "[.][driver_error]") {
  int n = -1, driver = 0, runtime = 0;
  const cudaError_t code = cudaGetDeviceCount(&n);
  CHECK(cudaDriverGetVersion(&driver) == cudaSuccess);
  CHECK(cudaRuntimeGetVersion(&runtime) == cudaSuccess);
  std::printf("%d: %s, %d devices, %s\n", static_cast<int>(code), cudaGetErrorString(code), n,
              driver < runtime ? "old" : "new");
}
TEST_CASE("with VGPU_DRIVER_ERROR there are no devices, and the code says why") {
  CHECK_THAT(run_case("[driver_error]", "VGPU_DRIVER_ERROR=35").out,
             ContainsSubstring("35: CUDA driver version is insufficient") &&
                 ContainsSubstring("0 devices, old"));
  CHECK_THAT(run_case("[driver_error]", "VGPU_DRIVER_ERROR=802").out,
             ContainsSubstring("802: system not yet initialized, 0 devices, new"));
  CHECK_THAT(run_case("[driver_error]", "VGPU_DRIVER_ERROR=0").out,
             ContainsSubstring("0: no error, 8 devices, new"));
}
