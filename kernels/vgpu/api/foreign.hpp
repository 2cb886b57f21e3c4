// Calls of the CUDA runtime that ringsmith does not use, but programs written for nvcc do: samples
// and tutorials. kernels/vgpu/nvcc includes this file first in everything that it compiles.
#pragma once

#ifdef __cplusplus
#include "kernels/vgpu/api/graph.hpp"
#include "kernels/vgpu/api/runtime.hpp"

// The include guards of NVIDIA's headers, by which helpers of samples know that they are there.
#define __CUDA_RUNTIME_H__
#define __DRIVER_TYPES_H__
#define CUDART_CB
#define CUDART_VERSION 12000

typedef cudaError_t cudaError;

// More attributes of cudaDeviceGetAttribute, which takes their numbers.
constexpr cudaDeviceAttr cudaDevAttrClockRate = static_cast<cudaDeviceAttr>(13);  // kHz: 1 GHz
constexpr cudaDeviceAttr cudaDevAttrIntegrated = static_cast<cudaDeviceAttr>(18);
constexpr cudaDeviceAttr cudaDevAttrCanMapHostMemory = static_cast<cudaDeviceAttr>(19);
constexpr cudaDeviceAttr cudaDevAttrComputeMode = static_cast<cudaDeviceAttr>(20);
constexpr cudaDeviceAttr cudaDevAttrConcurrentKernels = static_cast<cudaDeviceAttr>(31);
constexpr cudaDeviceAttr cudaDevAttrUnifiedAddressing = static_cast<cudaDeviceAttr>(41);
enum cudaComputeMode : int {
  cudaComputeModeDefault = 0,
  cudaComputeModeExclusive = 1,
  cudaComputeModeProhibited = 2,
  cudaComputeModeExclusiveProcess = 3,
};

#define cudaDeviceScheduleAuto 0x00
#define cudaDeviceScheduleSpin 0x01
#define cudaDeviceScheduleYield 0x02
#define cudaDeviceScheduleBlockingSync 0x04
#define cudaDeviceMapHost 0x08
// Checks the flags, which choose how a host thread waits, and ignores them.
cudaError_t cudaSetDeviceFlags(unsigned flags);
cudaError_t cudaDeviceDisablePeerAccess(int peer);

// Copies between devices after all their earlier work, and waits for the copy.
cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device,
                           std::size_t bytes);

// A host function that also gets the stream and its status, which is cudaSuccess: an error of a
// kernel ends the process here.
using cudaStreamCallback_t = void(CUDART_CB*)(cudaStream_t stream, cudaError_t status, void* data);
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data,
                                  unsigned flags);

#define cudaGraphInstantiateFlagUseNodePriority 8
// The only flag, priorities of nodes, has no effect, because every stream has a thread.
inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                                 unsigned long long flags = 0) {
  return cudaGraphInstantiate(exec, graph, flags & ~8ULL);
}
// A graph needs no preparation here: checks the stream.
inline cudaError_t cudaGraphUpload(cudaGraphExec_t /*exec*/, cudaStream_t stream) {
  return cudaStreamQuery(stream) == cudaErrorInvalidResourceHandle ? cudaErrorInvalidResourceHandle
                                                                   : cudaSuccess;
}

namespace vgpu {
// Gives the program the legacy default stream, unless the environment has VGPU_LEGACY_STREAM.
bool prefer_default_stream();
#ifdef VGPU_FOREIGN  // in a program, but not in the emulator
inline const bool kDefaultStream = prefer_default_stream();
#endif
}  // namespace vgpu
#endif
