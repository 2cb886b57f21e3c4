#include "kernels/vgpu/api/foreign.hpp"

#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/settings.hpp"

using vgpu::fail;

bool vgpu::prefer_default_stream() { return Settings::prefer("VGPU_LEGACY_STREAM", 1); }

cudaError_t cudaSetDeviceFlags(unsigned flags) {
  const vgpu::Quiet quiet;
  constexpr unsigned kKnown = cudaDeviceScheduleSpin | cudaDeviceScheduleYield |
                              cudaDeviceScheduleBlockingSync | cudaDeviceMapHost;
  if ((flags & ~kKnown) == 0) return cudaSuccess;
  return fail(cudaErrorInvalidValue,
              "cudaSetDeviceFlags: unknown flags " + std::to_string(flags & ~kKnown));
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data,
                                  unsigned flags) {
  if (flags != 0 || function == nullptr)
    return fail(cudaErrorInvalidValue, flags != 0 ? "cudaStreamAddCallback: flags must be 0"
                                                  : "cudaStreamAddCallback: the function is null");
  struct Bound {
    cudaStreamCallback_t function;
    cudaStream_t stream;
    void* data;
  };
  auto bound = std::make_unique<Bound>(Bound{function, stream, data});
  const cudaError_t error = cudaLaunchHostFunc(
      stream,
      [](void* p) {
        const std::unique_ptr<Bound> mine(static_cast<Bound*>(p));
        mine->function(mine->stream, cudaSuccess, mine->data);
      },
      bound.get());
  if (error == cudaSuccess) (void)bound.release();  // the stream owns it
  return error;
}

namespace {
constexpr int kLimits = cudaLimitPersistingL2CacheSize + 1;
std::array<std::atomic<std::size_t>, kLimits> limits{1024, 1 << 20, 8 << 20, 2, 2048, 64, 0};

cudaError_t check_limit(cudaLimit limit, const char* call) {
  if (limit >= 0 && limit < kLimits) return cudaSuccess;
  return fail(cudaErrorInvalidValue,
              std::string(call) + ": unknown limit " + std::to_string(limit));
}
}  // namespace

cudaError_t cudaDeviceSetLimit(cudaLimit limit, std::size_t value) {
  const vgpu::Quiet quiet;
  if (const auto e = check_limit(limit, "cudaDeviceSetLimit")) return e;
  limits[limit] = value;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit limit) {
  const vgpu::Quiet quiet;
  if (const auto e = check_limit(limit, "cudaDeviceGetLimit")) return e;
  *value = limits[limit];
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(vgpuDeviceProp* properties, int device) {
  *properties = {};
  if (const auto e = cudaGetDeviceProperties(static_cast<cudaDeviceProp*>(properties), device))
    return e;
  constexpr int kRegisters = 64 << 10, kWords = 64 << 10;
  properties->regsPerBlock = properties->regsPerMultiprocessor = kRegisters;
  properties->memPitch = 0x7fffffff;
  properties->totalConstMem = kWords;
  properties->textureAlignment = properties->surfaceAlignment = 512;
  properties->sharedMemPerMultiprocessor = 100 << 10;
  properties->reservedSharedMemPerBlock = 1 << 10;
  properties->maxBlocksPerMultiProcessor = 32;
  properties->memoryBusWidth = 64;
  properties->memoryClockRate = properties->clockRate = 1'000'000;
  properties->asyncEngineCount = 2;
  properties->deviceOverlap = 1;
  properties->concurrentKernels = properties->streamPrioritiesSupported = 1;
  properties->managedMemory = properties->concurrentManagedAccess = 1;
  properties->pageableMemoryAccess = properties->hostNativeAtomicSupported = 1;
  properties->computePreemptionSupported = properties->cooperativeLaunch = 1;
  properties->memoryPoolsSupported = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int device,
                                      int peer) {
  const cudaError_t error = cudaDeviceCanAccessPeer(value, device, peer);
  if (error == cudaSuccess && attribute == cudaDevP2PAttrPerformanceRank) *value = 0;  // the best
  return error;
}
