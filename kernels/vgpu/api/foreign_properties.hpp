// The properties and attributes of a device that ringsmith does not read, but samples print or
// check. A virtual device has no textures, and its clocks are 1 GHz.
#pragma once

#ifdef __cplusplus
#include "kernels/vgpu/api/runtime.hpp"

constexpr cudaDeviceAttr cudaDevAttrMaxBlockDimX = static_cast<cudaDeviceAttr>(2);
constexpr cudaDeviceAttr cudaDevAttrMaxBlockDimY = static_cast<cudaDeviceAttr>(3);
constexpr cudaDeviceAttr cudaDevAttrMaxBlockDimZ = static_cast<cudaDeviceAttr>(4);
constexpr cudaDeviceAttr cudaDevAttrMaxGridDimX = static_cast<cudaDeviceAttr>(5);
constexpr cudaDeviceAttr cudaDevAttrMaxGridDimY = static_cast<cudaDeviceAttr>(6);
constexpr cudaDeviceAttr cudaDevAttrMaxGridDimZ = static_cast<cudaDeviceAttr>(7);
constexpr cudaDeviceAttr cudaDevAttrTotalConstantMemory = static_cast<cudaDeviceAttr>(9);
constexpr cudaDeviceAttr cudaDevAttrMaxRegistersPerBlock = static_cast<cudaDeviceAttr>(12);
constexpr cudaDeviceAttr cudaDevAttrClockRate = static_cast<cudaDeviceAttr>(13);  // kHz
constexpr cudaDeviceAttr cudaDevAttrGpuOverlap = static_cast<cudaDeviceAttr>(15);
constexpr cudaDeviceAttr cudaDevAttrKernelExecTimeout = static_cast<cudaDeviceAttr>(17);
constexpr cudaDeviceAttr cudaDevAttrIntegrated = static_cast<cudaDeviceAttr>(18);
constexpr cudaDeviceAttr cudaDevAttrCanMapHostMemory = static_cast<cudaDeviceAttr>(19);
constexpr cudaDeviceAttr cudaDevAttrComputeMode = static_cast<cudaDeviceAttr>(20);
constexpr cudaDeviceAttr cudaDevAttrConcurrentKernels = static_cast<cudaDeviceAttr>(31);
constexpr cudaDeviceAttr cudaDevAttrMemoryClockRate = static_cast<cudaDeviceAttr>(36);  // kHz
constexpr cudaDeviceAttr cudaDevAttrGlobalMemoryBusWidth = static_cast<cudaDeviceAttr>(37);
constexpr cudaDeviceAttr cudaDevAttrL2CacheSize = static_cast<cudaDeviceAttr>(38);
constexpr cudaDeviceAttr cudaDevAttrMaxThreadsPerMultiProcessor = static_cast<cudaDeviceAttr>(39);
constexpr cudaDeviceAttr cudaDevAttrAsyncEngineCount = static_cast<cudaDeviceAttr>(40);
constexpr cudaDeviceAttr cudaDevAttrUnifiedAddressing = static_cast<cudaDeviceAttr>(41);
constexpr cudaDeviceAttr cudaDevAttrStreamPrioritiesSupported = static_cast<cudaDeviceAttr>(78);
constexpr cudaDeviceAttr cudaDevAttrManagedMemory = static_cast<cudaDeviceAttr>(83);
constexpr cudaDeviceAttr cudaDevAttrHostNativeAtomicSupported = static_cast<cudaDeviceAttr>(86);
constexpr cudaDeviceAttr cudaDevAttrPageableMemoryAccess = static_cast<cudaDeviceAttr>(88);
constexpr cudaDeviceAttr cudaDevAttrConcurrentManagedAccess = static_cast<cudaDeviceAttr>(89);
constexpr cudaDeviceAttr cudaDevAttrCooperativeLaunch = static_cast<cudaDeviceAttr>(95);
constexpr cudaDeviceAttr cudaDevAttrMemoryPoolsSupported = static_cast<cudaDeviceAttr>(115);
constexpr cudaDeviceAttr cudaDevAttrMemoryPoolSupportedHandleTypes =
    static_cast<cudaDeviceAttr>(119);

enum cudaComputeMode : int {
  cudaComputeModeDefault = 0,
  cudaComputeModeExclusive = 1,
  cudaComputeModeProhibited = 2,
  cudaComputeModeExclusiveProcess = 3,
};

enum cudaDeviceP2PAttr : int {
  cudaDevP2PAttrPerformanceRank = 1,
  cudaDevP2PAttrAccessSupported = 2,
  cudaDevP2PAttrNativeAtomicSupported = 3,
};
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int device,
                                      int peer);

// To programs for nvcc, cudaDeviceProp is this class, which adds the properties that runtime.hpp
// lacks: the toolkit's <cuda_runtime.h> renames it.
struct vgpuDeviceProp : cudaDeviceProp {
  char luid[8];
  unsigned luidDeviceNodeMask;
  int regsPerBlock;
  int regsPerMultiprocessor;
  std::size_t memPitch;
  std::size_t totalConstMem;
  std::size_t textureAlignment;
  std::size_t surfaceAlignment;
  std::size_t sharedMemPerMultiprocessor;
  std::size_t reservedSharedMemPerBlock;
  int maxBlocksPerMultiProcessor;
  int persistingL2CacheMaxSize;
  int memoryBusWidth;   // bits
  int memoryClockRate;  // kHz, as clockRate; CUDA 13 has neither
  int clockRate;
  int computeMode;
  int kernelExecTimeoutEnabled;
  int deviceOverlap;
  int asyncEngineCount;
  int concurrentKernels;
  int ECCEnabled;
  int tccDriver;
  int streamPrioritiesSupported;
  int globalL1CacheSupported;
  int localL1CacheSupported;
  int managedMemory;
  int concurrentManagedAccess;
  int pageableMemoryAccess;
  int hostNativeAtomicSupported;
  int computePreemptionSupported;
  int cooperativeLaunch;
  int cooperativeMultiDeviceLaunch;
  int memoryPoolsSupported;
  int isMultiGpuBoard;
  int maxTexture1D;  // 0: there are no textures
  int maxTexture2D[2];
  int maxTexture3D[3];
  int maxTexture1DLayered[2];
  int maxTexture2DLayered[3];
};
cudaError_t cudaGetDeviceProperties(vgpuDeviceProp* properties, int device);
// Returns the device with the most of `properties` that this machine has: all are the same.
inline cudaError_t cudaChooseDevice(int* device, const vgpuDeviceProp* properties) {
  *device = 0;
  return properties != nullptr ? cudaSuccess : cudaErrorInvalidValue;
}
#endif
