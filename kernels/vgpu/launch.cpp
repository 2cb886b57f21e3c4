#include "kernels/vgpu/api/launch.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "kernels/vgpu/counters.hpp"
#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/grid.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/queue.hpp"
#include "kernels/vgpu/settings.hpp"

namespace vgpu {

namespace {

constexpr std::size_t kSharedBytes = 48 << 10, kSharedBytesOptin = 227 << 10;

struct SharedLimits {
  std::mutex mutex;
  std::map<const void*, std::size_t> of_kernel;
};
SharedLimits& shared_limits() {
  static auto* limits = new SharedLimits;
  return *limits;
}

std::string text(dim3 d) {
  return std::to_string(d.x) + "x" + std::to_string(d.y) + "x" + std::to_string(d.z);
}

cudaError_t check_launch(const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes) {
  const auto no = [](const std::string& reason) {
    return fail(cudaErrorInvalidConfiguration, "launch: " + reason);
  };
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0)
    return no("grid " + text(grid) + " of blocks " + text(block) + " is empty");
  if (grid.x > 0x7fffffffU || grid.y > 0xffff || grid.z > 0xffff)
    return no("grid " + text(grid) + " is larger than 2^31-1 x 65535 x 65535");
  if (block.x > 1024 || block.y > 1024 || block.z > 64 ||
      std::uint64_t{block.x} * block.y * block.z > 1024)
    return no("block " + text(block) + " has more than 1024 threads, or more than 64 in z");
  if (shared_bytes <= kSharedBytes) return cudaSuccess;
  SharedLimits& limits = shared_limits();
  const std::scoped_lock lock(limits.mutex);
  const auto it = limits.of_kernel.find(kernel);
  if (it != limits.of_kernel.end() && shared_bytes <= it->second) return cudaSuccess;
  return fail(cudaErrorInvalidValue,  // as on a device
              "launch: " + std::to_string(shared_bytes) +
                  " bytes of dynamic shared memory: a kernel must request more than 48 KiB with "
                  "cudaFuncSetAttribute");
}

}  // namespace

cudaError_t launch(const Call& call, dim3 grid, dim3 block, std::size_t shared_bytes,
                   cudaStream_t stream) {
  Queue* queue = queue_of(stream, "launch");
  if (queue == nullptr) return cudaPeekAtLastError();
  static std::atomic<std::uint64_t> launches{0};
  std::uint64_t number = 0;
  std::optional<Driver::Turn> turn;
  {
    const Quiet quiet;
    if (const auto e = check_launch(call.function, grid, block, shared_bytes)) return e;
    if (queue->device().index() != Device::current().index())
      return fail(cudaErrorInvalidResourceHandle, "launch: the current device is " +
                                                      std::to_string(Device::current().index()) +
                                                      ", the stream is " + queue->name());
    turn.emplace(queue->device().driver(), Driver::Call::launches, call.function);
    number = ++launches;
  }
  // The Grid is created when the operation runs, because a captured launch may run more than once.
  queue->add("kernel", [=] {
    const auto launched = std::make_shared<Grid>(call, grid, block, shared_bytes, *queue, number);
    Driver& driver = launched->queue.device().driver();
    count_launch(launched->call);
    driver.kernel_begins();
    declare_before(&launched->begin);
    launched->run();
    driver.kernel_ends();
    launched->queue.device().memory().check_patterns_quickly(
        [&] { return "after " + launched->describe(); });
    declare_after(&launched->end);
  });
  {
    const Quiet quiet;
    turn.reset();
  }
  if (Settings::get().launch_blocking && !queue->capturing()) queue->synchronize();
  return cudaSuccess;
}

namespace {

struct Announced {
  std::mutex mutex;
  std::map<const void*, MakeCall> kernels;
};
Announced& announced() {
  static auto* const all = new Announced;
  return *all;
}

}  // namespace

const void* announce_kernel(const void* kernel, MakeCall make) {
  const Quiet quiet;
  const std::scoped_lock lock(announced().mutex);
  announced().kernels[kernel] = make;
  return kernel;
}

}  // namespace vgpu

cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                             std::size_t shared_bytes, cudaStream_t stream) {
  vgpu::MakeCall make = nullptr;
  {
    const vgpu::Quiet quiet;
    auto& announced = vgpu::announced();
    const std::scoped_lock lock(announced.mutex);
    const auto found = announced.kernels.find(kernel);
    if (found != announced.kernels.end()) make = found->second;
  }
  if (make == nullptr)
    return vgpu::fail(cudaErrorInvalidDeviceFunction,
                      "cudaLaunchKernel: no kernel is registered at this address: compile the "
                      "file that takes it with kernels/vgpu/nvcc");
  return vgpu::launch(make(kernel, arguments), grid, block, shared_bytes, stream);
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  const vgpu::Quiet quiet;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
    return vgpu::fail(cudaErrorInvalidValue,
                      "cudaFuncSetAttribute: this attribute is not modelled");
  if (value < 0 || static_cast<std::size_t>(value) > vgpu::kSharedBytesOptin)
    return vgpu::fail(cudaErrorInvalidValue,
                      "cudaFuncSetAttribute: at most 227 KiB of shared memory");
  auto& limits = vgpu::shared_limits();
  const std::scoped_lock lock(limits.mutex);
  limits.of_kernel[kernel] = static_cast<std::size_t>(value);
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  const vgpu::Quiet quiet;
  *attributes = {};
  if (kernel == nullptr)
    return vgpu::fail(cudaErrorInvalidDeviceFunction, "cudaFuncGetAttributes: no kernel");
  const vgpu::Driver::Turn turn(vgpu::Device::current().driver(), vgpu::Driver::Call::launches,
                                kernel);
  attributes->maxThreadsPerBlock = vgpu::kMostBlockThreads;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(vgpu::kSharedBytes);
  auto& limits = vgpu::shared_limits();
  const std::scoped_lock lock(limits.mutex);
  const auto found = limits.of_kernel.find(kernel);
  if (found != limits.of_kernel.end())
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(found->second);
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel,
                                                          int threads, std::size_t shared_bytes) {
  const vgpu::Quiet quiet;
  *blocks = 0;
  if (kernel == nullptr)
    return vgpu::fail(cudaErrorInvalidDeviceFunction,
                      "cudaOccupancyMaxActiveBlocksPerMultiprocessor: no kernel");
  if (threads < 1 || threads > vgpu::kMostBlockThreads || shared_bytes > vgpu::kSharedBytesOptin)
    return vgpu::fail(cudaErrorInvalidValue,
                      "cudaOccupancyMaxActiveBlocksPerMultiprocessor: no block has " +
                          std::to_string(threads) + " threads and " + std::to_string(shared_bytes) +
                          " bytes of dynamic shared memory");
  constexpr int kMostBlocks = 32;
  const int limit = vgpu::Settings::get().resident;
  *blocks = limit > 0 ? limit : std::min(kMostBlocks, vgpu::kMostResidentThreads / threads);
  return cudaSuccess;
}
