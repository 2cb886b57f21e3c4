#include "kernels/vgpu/api/launch.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "kernels/vgpu/api/foreign.hpp"
#include "kernels/vgpu/api/foreign_launch.hpp"
#include "kernels/vgpu/block.hpp"
#include "kernels/vgpu/counters.hpp"
#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/grid.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/queue.hpp"
#include "kernels/vgpu/settings.hpp"

namespace vgpu {

cudaError_t launch_as(const Call& call, dim3 grid, dim3 block, std::size_t shared_bytes,
                      cudaStream_t stream, bool cooperative);

namespace {

constexpr std::size_t kSharedBytes = 48 << 10;

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
  // A launch by <<<>>> has no address: some kernel must have requested as much.
  if (kernel == nullptr && std::any_of(limits.of_kernel.begin(), limits.of_kernel.end(),
                                       [&](const auto& l) { return shared_bytes <= l.second; }))
    return cudaSuccess;
  return fail(cudaErrorInvalidValue,  // as on a device
              "launch: " + std::to_string(shared_bytes) +
                  " bytes of dynamic shared memory: a kernel must request more than 48 KiB with "
                  "cudaFuncSetAttribute");
}

}  // namespace

cudaError_t launch(const Call& call, dim3 grid, dim3 block, std::size_t shared_bytes,
                   cudaStream_t stream) {
  return launch_as(call, grid, block, shared_bytes, stream, false);
}

cudaError_t launch_as(const Call& call, dim3 grid, dim3 block, std::size_t shared_bytes,
                      cudaStream_t stream, bool cooperative) {
  // A kernel that launches a kernel ends after it. Without a stream, the launch is not in the
  // host's default stream.
  Grid* const parent = current_thread != nullptr ? &active_runner->grid() : nullptr;
  Queue* queue =
      parent != nullptr && stream == nullptr ? parent->child_stream() : queue_of(stream, "launch");
  if (queue == nullptr) return cudaPeekAtLastError();
  if (parent != nullptr) {
    const Quiet quiet;
    parent->waits_for(*queue);
  }
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
  if (parent == nullptr) ++call_counters().kernels;
  // The Grid is created when the operation runs, because a captured launch may run more than once.
  queue->add("kernel", [=] {
    const auto launched = std::make_shared<Grid>(call, grid, block, shared_bytes, *queue, number);
    launched->cooperative = cooperative;
    Driver& driver = launched->queue.device().driver();
    count_launch(launched->call, std::uint64_t{grid.x} * grid.y * grid.z);
    driver.kernel_begins();
    declare_before(&launched->begin);
    launched->run();
    launched->wait_for_children();
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

std::optional<vgpu::Call> vgpu::announced_call(const void* kernel, void* const* arguments,
                                               const char* caller) {
  MakeCall make = nullptr;
  {
    const Quiet quiet;
    const std::scoped_lock lock(announced().mutex);
    const auto found = announced().kernels.find(kernel);
    if (found != announced().kernels.end()) make = found->second;
  }
  if (make != nullptr) return make(kernel, arguments);
  fail(cudaErrorInvalidDeviceFunction,
       std::string(caller) +
           ": no kernel is registered at this address: compile the file that takes it with "
           "kernels/vgpu/nvcc");
  return {};
}

cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                             std::size_t shared_bytes, cudaStream_t stream) {
  const auto call = vgpu::announced_call(kernel, arguments, "cudaLaunchKernel");
  return call ? vgpu::launch(*call, grid, block, shared_bytes, stream) : cudaPeekAtLastError();
}

cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                                        std::size_t shared_bytes, cudaStream_t stream) {
  const auto call = vgpu::announced_call(kernel, arguments, "cudaLaunchCooperativeKernel");
  if (!call) return cudaPeekAtLastError();
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  int most = 0;
  if (const auto e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
          &most, kernel, static_cast<int>(std::min<std::uint64_t>(threads, 1 << 20)), shared_bytes))
    return e;
  if (blocks > static_cast<std::uint64_t>(most) * vgpu::kMultiprocessors)
    return vgpu::fail(cudaErrorCooperativeLaunchTooLarge,
                      "cudaLaunchCooperativeKernel: " + std::to_string(blocks) +
                          " blocks must run together, but the device holds " +
                          std::to_string(most * vgpu::kMultiprocessors));
  return vgpu::launch_as(*call, grid, block, shared_bytes, stream, true);
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  const vgpu::Quiet quiet;
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;  // a hint
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
    return vgpu::fail(cudaErrorInvalidValue,
                      "cudaFuncSetAttribute: this attribute is not modelled");
  if (value < 0 || static_cast<std::size_t>(value) > vgpu::Settings::get().shared_bytes)
    return vgpu::fail(cudaErrorInvalidValue,
                      "cudaFuncSetAttribute: a block has at most " +
                          std::to_string(vgpu::Settings::get().shared_bytes >> 10) +
                          " KiB of shared memory (VGPU_SHARED_KB), not " + std::to_string(value) +
                          " bytes");
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
  if (threads < 1 || threads > vgpu::kMostBlockThreads ||
      shared_bytes > vgpu::Settings::get().shared_bytes)
    return vgpu::fail(cudaErrorInvalidValue,
                      "cudaOccupancyMaxActiveBlocksPerMultiprocessor: no block has " +
                          std::to_string(threads) + " threads and " + std::to_string(shared_bytes) +
                          " bytes of dynamic shared memory");
  constexpr int kMostBlocks = 32;
  const int limit = vgpu::Settings::get().resident;
  *blocks = limit > 0 ? limit : std::min(kMostBlocks, vgpu::kMostResidentThreads / threads);
  return cudaSuccess;
}
