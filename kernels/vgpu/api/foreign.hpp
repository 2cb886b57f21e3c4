// Calls of the CUDA runtime that ringsmith does not use, but programs written for nvcc do: samples
// and tutorials. kernels/vgpu/nvcc includes this file first in everything that it compiles.
#pragma once

#ifdef __cplusplus
#include "kernels/vgpu/api/foreign_graph.hpp"
#include "kernels/vgpu/api/foreign_memory.hpp"
#include "kernels/vgpu/api/foreign_properties.hpp"
#include "kernels/vgpu/api/graph.hpp"
#include "kernels/vgpu/api/runtime.hpp"

// The include guards of NVIDIA's headers, by which helpers of samples know that they are there.
#define __CUDA_RUNTIME_H__
#define __DRIVER_TYPES_H__
#define CUDART_CB
#define CUDART_VERSION 12000

typedef cudaError_t cudaError;

// More codes. No call of the emulator returns cudaErrorAssert: an error of a kernel ends the
// process.
constexpr cudaError_t cudaErrorInvalidPitchValue = static_cast<cudaError_t>(12);
constexpr cudaError_t cudaErrorInvalidSymbol = static_cast<cudaError_t>(13);
constexpr cudaError_t cudaErrorAssert = static_cast<cudaError_t>(710);
constexpr cudaError_t cudaErrorStreamCaptureUnjoined = static_cast<cudaError_t>(904);
constexpr cudaError_t cudaErrorStreamCaptureIsolation = static_cast<cudaError_t>(905);
constexpr cudaError_t cudaErrorGraphExecUpdateFailure = static_cast<cudaError_t>(910);
constexpr cudaError_t cudaErrorUnknown = static_cast<cudaError_t>(999);
constexpr cudaError_t cudaErrorCooperativeLaunchTooLarge = static_cast<cudaError_t>(720);

#define cudaDeviceScheduleAuto 0x00
#define cudaDeviceScheduleSpin 0x01
#define cudaDeviceScheduleYield 0x02
#define cudaDeviceScheduleBlockingSync 0x04
#define cudaDeviceBlockingSync 0x04
#define cudaDeviceMapHost 0x08
// Checks the flags, which choose how a host thread waits, and ignores them.
cudaError_t cudaSetDeviceFlags(unsigned flags);
cudaError_t cudaDeviceDisablePeerAccess(int peer);

// A host function that also gets the stream and its status, which is cudaSuccess: an error of a
// kernel ends the process here.
using cudaStreamCallback_t = void(CUDART_CB*)(cudaStream_t stream, cudaError_t status, void* data);
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data,
                                  unsigned flags);

// Forms of the runtime's calls that CUDA's C++ header has in addition.
inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned flags) {
  return cudaEventCreateWithFlags(event, flags);
}
inline cudaError_t cudaEventRecord(cudaEvent_t event) { return cudaEventRecord(event, nullptr); }
#define cudaEventRecordDefault 0
#define cudaEventRecordExternal 1
inline cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream = nullptr,
                                            unsigned flags = cudaEventRecordDefault) {
  return flags == cudaEventRecordDefault ? cudaEventRecord(event, stream) : cudaErrorNotSupported;
}
#define cudaEventWaitDefault 0

// Limits of the device's stack, heap, printf buffer and nesting. There are none here: the call
// stores the value, which cudaDeviceGetLimit returns.
enum cudaLimit : int {
  cudaLimitStackSize = 0,
  cudaLimitPrintfFifoSize = 1,
  cudaLimitMallocHeapSize = 2,
  cudaLimitDevRuntimeSyncDepth = 3,
  cudaLimitDevRuntimePendingLaunchCount = 4,
  cudaLimitMaxL2FetchGranularity = 5,
  cudaLimitPersistingL2CacheSize = 6,
};
cudaError_t cudaDeviceSetLimit(cudaLimit limit, std::size_t value);
cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit limit);

// The division of a cache between L1 and shared memory, which has no effect here.
enum cudaFuncCache : int {
  cudaFuncCachePreferNone = 0,
  cudaFuncCachePreferShared = 1,
  cudaFuncCachePreferL1 = 2,
  cudaFuncCachePreferEqual = 3,
};
inline cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache /*config*/) { return cudaSuccess; }
template <class Kernel>
cudaError_t cudaFuncSetCacheConfig(Kernel* kernel, cudaFuncCache /*config*/) {
  return kernel != nullptr ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}

// Hints about lines that a stream reads repeatedly, for a cache that is not modelled. Only the
// window attribute is there.
enum cudaAccessProperty : int {
  cudaAccessPropertyNormal = 0,
  cudaAccessPropertyStreaming = 1,
  cudaAccessPropertyPersisting = 2,
};
struct cudaAccessPolicyWindow {
  void* base_ptr;
  std::size_t num_bytes;
  float hitRatio;
  cudaAccessProperty hitProp;
  cudaAccessProperty missProp;
};
enum cudaStreamAttrID : int { cudaStreamAttributeAccessPolicyWindow = 1 };
union cudaStreamAttrValue {
  cudaAccessPolicyWindow accessPolicyWindow;
};
inline cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaStreamAttrID attribute,
                                          const cudaStreamAttrValue* value) {
  int priority = 0;  // checks the stream
  if (attribute != cudaStreamAttributeAccessPolicyWindow || value == nullptr)
    return cudaErrorInvalidValue;
  return cudaStreamGetPriority(stream, &priority);
}
inline cudaError_t cudaCtxResetPersistingL2Cache() { return cudaSuccess; }

namespace vgpu {
// Gives the program the legacy default stream, unless the environment has VGPU_LEGACY_STREAM.
bool prefer_default_stream();
#ifdef VGPU_FOREIGN  // in a program, but not in the emulator
inline const bool kDefaultStream = prefer_default_stream();
#endif
}  // namespace vgpu
#endif
