#include "kernels/vgpu/ipc.hpp"

#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/vgpu/api/runtime.hpp"
#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/event.hpp"
#include "kernels/vgpu/include/cuda.h"
#include "kernels/vgpu/ipc_server.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/rights.hpp"
#include "kernels/vgpu/settings.hpp"

namespace vgpu {

namespace {
constexpr std::size_t kClosedKept = 64;  // blocks
}  // namespace

Imports& Imports::get() {
  static auto* imports = new Imports;
  return *imports;
}

void* Imports::open(const MemoryName& name, int device, std::string& reason) {
  const std::scoped_lock lock(mutex_);
  for (auto& [start, import] : imports_)
    if (import.name == name && import.device == device) {
      ++import.opened;
      return import.start;
    }
  const int file = ask(name.exporter, {Request::What::memory, name.device, name.offset}, reason);
  if (file < 0) return nullptr;
  const bool broken = Settings::get().peers == PeerAccess::broken;
  void* at = ::mmap(nullptr, name.bytes, PROT_READ | PROT_WRITE, broken ? MAP_PRIVATE : MAP_SHARED,
                    file, static_cast<off_t>(name.offset));
  ::close(file);
  if (at == MAP_FAILED) {
    reason = "no address space for " + std::to_string(name.bytes) + " bytes";
    return nullptr;
  }
  auto* start = static_cast<std::byte*>(at);
  const std::size_t guard = name.small != 0 ? guard_page() : 0;  // as in the exporter
  if (guard != 0) ::mprotect(start, guard, PROT_NONE);
  give_key(start + guard, name.bytes - guard, Device::get(device).key());
  imports_[start] = {start, name.bytes, device, name, 1};
  return at;
}

bool Imports::close(void* start) {
  const std::scoped_lock lock(mutex_);
  const auto it = imports_.find(static_cast<std::byte*>(start));
  if (it == imports_.end()) return false;
  if (--it->second.opened > 0) return true;
  take_key(it->second.start + (it->second.name.small != 0 ? guard_page() : 0));
  const std::size_t bytes = it->second.bytes;
  imports_.erase(it);
  if (::mmap(start, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == MAP_FAILED) {
    ::munmap(start, bytes);
    return true;
  }
  closed_.emplace_back(static_cast<std::byte*>(start), bytes);
  if (closed_.size() > kClosedKept) {
    ::munmap(closed_.front().data(), closed_.front().size());
    closed_.pop_front();
  }
  return true;
}

std::optional<std::size_t> Imports::find_closed(const void* address) const {
  const auto* p = static_cast<const std::byte*>(address);
  const std::scoped_lock lock(mutex_);
  for (const auto block : closed_)
    if (p >= block.data() && p < block.data() + block.size()) return block.size();
  return {};
}

std::optional<Imports::Import> Imports::find(const void* address) const {
  const auto* p = static_cast<const std::byte*>(address);
  const std::scoped_lock lock(mutex_);
  const auto it = imports_.upper_bound(p);
  if (it == imports_.begin()) return {};
  const Import& import = std::prev(it)->second;
  if (p >= import.start + import.bytes) return {};
  return import;
}

std::string Imports::describe(const Import& import, const void* address) const {
  return "memory of process " + std::to_string(import.name.exporter.process) +
         ", opened on device " + std::to_string(import.device) + " (block of " +
         std::to_string(import.bytes) + " bytes) + " +
         std::to_string(static_cast<const std::byte*>(address) - import.start);
}

}  // namespace vgpu

// ---- the CUDA calls ----

using vgpu::Device;
using vgpu::fail;
using vgpu::Imports;
using vgpu::MemoryName;
using vgpu::Quiet;

namespace {

struct EventName {
  vgpu::Exporter exporter;
  std::uint64_t index = 0;
};

// A handle is a tag, by which garbage is recognised, followed by a name.
template <class Handle, class Name>
void write_handle(Handle& handle, std::uint64_t tag, const Name& name) {
  static_assert(sizeof tag + sizeof name <= sizeof handle);
  handle = {};
  std::memcpy(handle.reserved, &tag, sizeof tag);
  std::memcpy(handle.reserved + sizeof tag, &name, sizeof name);
}
template <class Handle, class Name>
bool read_handle(const Handle& handle, std::uint64_t tag, Name& name) {
  std::memcpy(&name, handle.reserved + sizeof tag, sizeof name);
  return std::memcmp(handle.reserved, &tag, sizeof tag) == 0;
}
constexpr std::uint64_t kMemoryTag = 0x76677075'6d656d00U, kEventTag = 0x76677075'65767400U;

cudaError_t own_handle(const char* call) {
  return fail(cudaErrorDeviceUninitialized,
              std::string(call) +
                  ": the handle was exported by this process, which cannot open it: inside one "
                  "process use the pointer or event itself");
}

}  // namespace

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  const Quiet quiet;
  const Device* device = Device::owner(pointer);
  if (device == nullptr || !device->memory().find(pointer))
    return fail(cudaErrorInvalidValue,
                "cudaIpcGetMemHandle: not live device memory: " + vgpu::describe_address(pointer));
  const auto block = device->memory().block_of(pointer);
  write_handle(
      *handle, kMemoryTag,
      MemoryName{vgpu::export_from_here(), device->index(), device->memory().offset(block->base),
                 block->bytes, block->small ? 1 : 0});
  return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void** base, cudaIpcMemHandle_t handle, unsigned flags) {
  const Quiet quiet;
  *base = nullptr;
  MemoryName name;
  if (flags != cudaIpcMemLazyEnablePeerAccess)
    return fail(cudaErrorInvalidValue,
                "cudaIpcOpenMemHandle: flags must be cudaIpcMemLazyEnablePeerAccess");
  if (!read_handle(handle, kMemoryTag, name))
    return fail(cudaErrorInvalidValue, "cudaIpcOpenMemHandle: this is not a memory handle");
  if (vgpu::is_here(name.exporter)) return own_handle("cudaIpcOpenMemHandle");
  std::string reason;
  *base = Imports::get().open(name, Device::current().index(), reason);
  if (*base != nullptr) return cudaSuccess;
  return fail(cudaErrorMapBufferObjectFailed, "cudaIpcOpenMemHandle: " + reason);
}

cudaError_t cudaIpcCloseMemHandle(void* base) {
  const Quiet quiet;
  if (Imports::get().close(base)) return cudaSuccess;
  return fail(cudaErrorInvalidValue,
              "cudaIpcCloseMemHandle: not a pointer that cudaIpcOpenMemHandle returned, or closed "
              "already: " +
                  vgpu::describe_address(base));
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  const Quiet quiet;
  if (event == nullptr || event->counters == nullptr || event->imported)
    return fail(cudaErrorInvalidResourceHandle,
                "cudaIpcGetEventHandle: the event must be made here, with cudaEventInterprocess | "
                "cudaEventDisableTiming");
  event->counters->exported = true;
  write_handle(
      *handle, kEventTag,
      EventName{vgpu::export_from_here(), vgpu::SharedEvents::get().index(event->counters.get())});
  return cudaSuccess;
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  const Quiet quiet;
  *event = nullptr;
  EventName name;
  if (!read_handle(handle, kEventTag, name))
    return fail(cudaErrorInvalidValue, "cudaIpcOpenEventHandle: this is not an event handle");
  if (vgpu::is_here(name.exporter)) return own_handle("cudaIpcOpenEventHandle");
  std::string reason;
  const int file = vgpu::ask(name.exporter, {vgpu::Request::What::events, 0, 0}, reason);
  if (file < 0) return fail(cudaErrorMapBufferObjectFailed, "cudaIpcOpenEventHandle: " + reason);
  auto counters = vgpu::open_counters(file, name.index);
  ::close(file);
  if (counters == nullptr)
    return fail(cudaErrorMapBufferObjectFailed, "cudaIpcOpenEventHandle: no address space");
  auto opened = std::make_unique<CUevent_st>();
  opened->flags = cudaEventInterprocess | cudaEventDisableTiming;
  opened->device = Device::current().index();
  opened->counters = std::move(counters);
  opened->imported = true;
  *event = vgpu::living_event(std::move(opened));
  return cudaSuccess;
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, std::size_t* size, CUdeviceptr pointer) {
  const Quiet quiet;
  const auto* p = reinterpret_cast<const void*>(pointer);  // NOLINT(performance-no-int-to-ptr)
  const Device* device = Device::owner(p);
  if (device != nullptr && device->memory().find(p)) {
    const auto block = device->memory().block_of(p);
    *base = reinterpret_cast<CUdeviceptr>(block->base);
    *size = block->bytes;
    return CUDA_SUCCESS;
  }
  if (const auto import = Imports::get().find(p)) {
    *base = reinterpret_cast<CUdeviceptr>(import->start);
    *size = import->bytes;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}
