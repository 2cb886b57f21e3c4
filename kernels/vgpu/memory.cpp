// The calls of api/memory.hpp about device memory.
#include "kernels/vgpu/api/memory.hpp"

#include <string>

#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/host_memory.hpp"
#include "kernels/vgpu/imports.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/queue.hpp"
#include "kernels/vgpu/report.hpp"

using vgpu::Device;
using vgpu::fail;
using vgpu::Quiet;

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  const Quiet quiet;
  vgpu::outside_host_functions("cudaMalloc");
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  Device& device = Device::current();
  *pointer = device.memory().allocate(bytes);
  if (*pointer != nullptr) return cudaSuccess;
  const std::size_t used = device.memory().used(), capacity = device.memory().capacity();
  return fail(cudaErrorMemoryAllocation,
              std::to_string(bytes) + " bytes asked for, " + std::to_string(capacity - used) +
                  " of device " + std::to_string(device.index()) + "'s " +
                  std::to_string(capacity) + " are free (VGPU_MEMORY_MB)");
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  Device* device = nullptr;
  {
    const Quiet quiet;
    vgpu::outside_host_functions("cudaFree");
    device = Device::owner(pointer);
    const auto found = device != nullptr ? device->memory().find(pointer) : std::nullopt;
    if (!found || found->start != pointer)
      return fail(cudaErrorInvalidValue, "cudaFree: not the start of living device memory: " +
                                             vgpu::describe_address(pointer));
  }
  device->synchronize();
  const Quiet quiet;
  device->memory().free(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  const Quiet quiet;
  const vgpu::Arena& memory = Device::current().memory();
  *total_bytes = memory.capacity();
  *free_bytes = memory.capacity() - memory.used();
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const Quiet quiet;
  auto* p = const_cast<void*>(pointer);
  *attributes = {cudaMemoryTypeUnregistered, -1, nullptr, p};
  if (const Device* device = Device::owner(pointer)) {
    if (device->memory().find(pointer))
      *attributes = {cudaMemoryTypeDevice, device->index(), p, nullptr};
  } else if (const auto import = vgpu::Imports::get().find(pointer)) {
    *attributes = {cudaMemoryTypeDevice, import->device, p, nullptr};
  } else if (const auto pinned = vgpu::PinnedMemory::get().find(pointer)) {
    *attributes = {cudaMemoryTypeHost, pinned->device, p, p};
  }
  return cudaSuccess;
}
