#include "kernels/vgpu/memory.hpp"

#include <cstring>
#include <optional>
#include <string>
#include <sys/mman.h>

#include "kernels/vgpu/api/foreign_memory.hpp"
#include "kernels/vgpu/api/runtime.hpp"
#include "kernels/vgpu/api/thread.hpp"
#include "kernels/vgpu/capture.hpp"
#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/ipc.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/queue.hpp"
#include "kernels/vgpu/settings.hpp"

namespace vgpu {

PinnedMemory& PinnedMemory::get() {
  static auto* memory = new PinnedMemory;
  return *memory;
}

bool PinnedMemory::add(const Range& range) {
  const std::scoped_lock lock(mutex_);
  const auto next = ranges_.lower_bound(range.start);
  if (next != ranges_.end() && next->first < range.start + range.bytes) return false;
  if (next != ranges_.begin()) {
    const Range& before = std::prev(next)->second;
    if (before.start + before.bytes > range.start) return false;
  }
  ranges_[range.start] = range;
  return true;
}

std::optional<PinnedMemory::Range> PinnedMemory::remove(const void* start, bool allocated) {
  const std::scoped_lock lock(mutex_);
  const auto it = ranges_.find(static_cast<const std::byte*>(start));
  if (it == ranges_.end() || it->second.allocated != allocated) return {};
  const Range range = it->second;
  ranges_.erase(it);
  return range;
}

void PinnedMemory::manage(const void* start) {
  const std::scoped_lock lock(mutex_);
  ranges_.at(static_cast<const std::byte*>(start)).managed = true;
}

std::optional<PinnedMemory::Range> PinnedMemory::find(const void* address) const {
  const auto* p = static_cast<const std::byte*>(address);
  const std::scoped_lock lock(mutex_);
  auto it = ranges_.upper_bound(p);
  if (it == ranges_.begin()) return {};
  const Range& range = std::prev(it)->second;
  if (p >= range.start + range.bytes) return {};
  return range;
}

bool PinnedMemory::ends_before(const void* address) const {
  const auto* p = static_cast<const std::byte*>(address);
  const std::scoped_lock lock(mutex_);
  const auto it = ranges_.upper_bound(p);
  if (it == ranges_.begin()) return false;
  const Range& range = std::prev(it)->second;
  return range.allocated &&
         p - (range.start + range.bytes) < static_cast<std::ptrdiff_t>(2 * guard_page());
}

}  // namespace vgpu

using vgpu::Device;
using vgpu::fail;
using vgpu::PinnedMemory;
using vgpu::Quiet;

namespace {
std::size_t mapped(std::size_t bytes) {
  const std::size_t page = vgpu::guard_page();
  return (bytes + page - 1) / page * page + page;
}
}  // namespace

cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned flags) {
  const Quiet quiet;
  vgpu::outside_host_functions("cudaHostAlloc");
  *pointer = nullptr;
  if (const auto e = vgpu::refuse_unsafe("cudaHostAlloc")) return e;
  if (flags > (cudaHostAllocPortable | cudaHostAllocMapped))
    return fail(cudaErrorInvalidValue, "cudaHostAlloc: only Portable and Mapped are supported");
  if (bytes == 0) return cudaSuccess;
  const vgpu::Driver::Turn turn(Device::current().driver(), vgpu::Driver::Call::allocates);
  // An inaccessible page follows the memory. Host and devices use the same address.
  void* space =
      ::mmap(nullptr, mapped(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (space == MAP_FAILED)
    return fail(cudaErrorMemoryAllocation,
                "cannot allocate " + std::to_string(bytes) + " bytes of host memory");
  auto* start = static_cast<std::byte*>(space);
  ::mprotect(start + mapped(bytes) - vgpu::guard_page(), vgpu::guard_page(), PROT_NONE);
  std::memset(start, 0xff, bytes);
  PinnedMemory::get().add({start, bytes, Device::current().index(), true});
  *pointer = start;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  {
    const Quiet quiet;
    vgpu::outside_host_functions("cudaFreeHost");
    if (const auto e = vgpu::refuse_unsafe("cudaFreeHost")) return e;
    const auto range = PinnedMemory::get().find(pointer);
    if (!range || range->start != pointer || !range->allocated)
      return fail(cudaErrorInvalidValue, "cudaFreeHost: cudaHostAlloc did not return this pointer");
  }
  for (int d = 0; d < Device::count(); ++d) Device::get(d).synchronize();
  const Quiet quiet;
  const auto range = PinnedMemory::get().remove(pointer, true);
  if (range) ::munmap(pointer, mapped(range->bytes));
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned flags) {
  const Quiet quiet;
  if (flags > (cudaHostRegisterPortable | cudaHostRegisterMapped))
    return fail(cudaErrorInvalidValue, "cudaHostRegister: only Portable and Mapped are supported");
  if (pointer == nullptr || bytes == 0)
    return fail(cudaErrorInvalidValue, "cudaHostRegister: the range is empty");
  const bool added = PinnedMemory::get().add(
      {static_cast<std::byte*>(pointer), bytes, Device::current().index(), false});
  return added ? cudaSuccess
               : fail(cudaErrorHostMemoryAlreadyRegistered,
                      "cudaHostRegister: part of the range is already pinned");
}

cudaError_t cudaHostUnregister(void* pointer) {
  const Quiet quiet;
  if (PinnedMemory::get().remove(pointer, false)) return cudaSuccess;
  return fail(cudaErrorHostMemoryNotRegistered,
              "cudaHostUnregister: no registered range begins at this pointer");
}

cudaError_t cudaHostGetDevicePointer(void** device_pointer, void* host_pointer, unsigned flags) {
  const Quiet quiet;
  *device_pointer = nullptr;
  if (flags != 0) return fail(cudaErrorInvalidValue, "cudaHostGetDevicePointer: flags must be 0");
  if (!PinnedMemory::get().find(host_pointer))
    return fail(cudaErrorInvalidValue, "cudaHostGetDevicePointer: the memory is not pinned");
  *device_pointer = host_pointer;
  return cudaSuccess;
}

// ---- device memory ----

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  const Quiet quiet;
  vgpu::outside_host_functions("cudaMalloc");
  *pointer = nullptr;
  if (const auto e = vgpu::refuse_unsafe("cudaMalloc")) return e;
  if (bytes == 0) return cudaSuccess;
  Device& device = Device::current();
  std::optional<vgpu::Driver::Turn> turn;
  if (vgpu::current_thread == nullptr) turn.emplace(device.driver(), vgpu::Driver::Call::allocates);
  *pointer = device.memory().allocate(bytes);
  if (*pointer != nullptr) return cudaSuccess;
  const std::size_t used = device.memory().used(), capacity = device.memory().capacity();
  return fail(cudaErrorMemoryAllocation,
              std::to_string(bytes) + " bytes requested, but only " +
                  std::to_string(capacity - used) + " of device " + std::to_string(device.index()) +
                  "'s " + std::to_string(capacity) + " are free (VGPU_MEMORY_MB)");
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  Device* device = nullptr;
  {
    const Quiet quiet;
    vgpu::outside_host_functions("cudaFree");
    if (const auto e = vgpu::refuse_unsafe("cudaFree")) return e;
    const auto managed = PinnedMemory::get().find(pointer);
    if (managed && managed->managed) return cudaFreeHost(pointer);
    device = Device::owner(pointer);
    const auto found = device != nullptr ? device->memory().find(pointer) : std::nullopt;
    if (!found || found->start != pointer)
      return fail(cudaErrorInvalidValue, "cudaFree: not the start of a live device allocation: " +
                                             vgpu::describe_address(pointer));
  }
  if (vgpu::current_thread != nullptr) {  // a kernel's own memory: its grid still runs
    const Quiet quiet;
    device->memory().free(pointer);
    return cudaSuccess;
  }
  std::optional<vgpu::Driver::Turn> turn;
  {
    const Quiet quiet;
    turn.emplace(device->driver(), vgpu::Driver::Call::allocates);
  }
  device->synchronize();
  const Quiet quiet;
  turn.reset();
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
    *attributes = {pinned->managed ? cudaMemoryTypeManaged : cudaMemoryTypeHost, pinned->device, p,
                   p};
  }
  return cudaSuccess;
}
