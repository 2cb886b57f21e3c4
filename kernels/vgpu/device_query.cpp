// The calls of api/device_query.hpp.
#include "kernels/vgpu/api/device_query.hpp"

#include <cstdio>
#include <cstring>
#include <string>

#include "kernels/vgpu/api/memory.hpp"
#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/queue.hpp"
#include "kernels/vgpu/settings.hpp"

using vgpu::Device;
using vgpu::fail;
using vgpu::Quiet;

namespace {

constexpr int kSharedBytes = 48 << 10, kSharedBytesOptin = 99 << 10;
constexpr int kMultiprocessors = 4, kMostThreads = 1024;

bool exists(int device) { return device >= 0 && device < Device::count(); }

cudaError_t no_device(int device) {
  return fail(cudaErrorInvalidDevice, "there is no device " + std::to_string(device) + ", only " +
                                          std::to_string(Device::count()) + " (VGPU_DEVICES)");
}

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  const Quiet quiet;
  *count = Device::count();
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  const Quiet quiet;
  *device = Device::current().index();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  const Quiet quiet;
  if (!exists(device)) return no_device(device);
  Device::set_current(device);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const Quiet quiet;
  if (!exists(device)) return no_device(device);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "vgpu");
  properties->uuid = Device::get(device).uuid();
  properties->totalGlobalMem = Device::get(device).memory().capacity();
  properties->sharedMemPerBlock = kSharedBytes;
  properties->sharedMemPerBlockOptin = kSharedBytesOptin;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = kMostThreads;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = kMostThreads;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 0x7fffffff;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 0xffff;
  properties->multiProcessorCount = kMultiprocessors;
  properties->maxThreadsPerMultiProcessor = 2 * kMostThreads;
  properties->major = 8;
  properties->pciBusID = device;
  properties->l2CacheSize = 1 << 20;
  properties->unifiedAddressing = 1;
  properties->canMapHostMemory = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const Quiet quiet;
  if (!exists(device)) return no_device(device);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = kMostThreads;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = kSharedBytes;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = kSharedBytesOptin;
      return cudaSuccess;
    case cudaDevAttrWarpSize:
      *value = 32;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = kMultiprocessors;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 8;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
  }
  return fail(cudaErrorInvalidValue, "this device attribute is not modelled");
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  const Quiet quiet;
  if (!exists(device)) return no_device(device);
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0", device);
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  vgpu::outside_host_functions("cudaDeviceSynchronize");
  Device::current().synchronize();
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 12000;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  const Quiet quiet;
  if (!exists(device)) return no_device(device);
  if (!exists(peer)) return no_device(peer);
  *can = device != peer ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  const Quiet quiet;
  if (!exists(peer)) return no_device(peer);
  if (flags != 0) return fail(cudaErrorInvalidValue, "cudaDeviceEnablePeerAccess: flags must be 0");
  if (peer == Device::current().index())
    return fail(cudaErrorInvalidDevice, "a device is not its own peer");
  if (!Device::current().enable_peer(Device::get(peer), true))
    return fail(cudaErrorPeerAccessAlreadyEnabled,
                "device " + std::to_string(Device::current().index()) + " can access device " +
                    std::to_string(peer) + " already");
  return cudaSuccess;
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  const Quiet quiet;
  if (!exists(peer)) return no_device(peer);
  if (!Device::current().enable_peer(Device::get(peer), false))
    return fail(cudaErrorPeerAccessNotEnabled,
                "access to device " + std::to_string(peer) + " was not enabled");
  return cudaSuccess;
}
