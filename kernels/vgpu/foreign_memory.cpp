#include "kernels/vgpu/api/foreign_memory.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <vector>

#include "kernels/vgpu/capture.hpp"
#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/memory.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/queue.hpp"

struct CUmemPoolHandle_st {
  int device;
  std::map<int, std::uint64_t> attributes;
};

using vgpu::Device;
using vgpu::fail;
using vgpu::PinnedMemory;
using vgpu::Queue;
using vgpu::queue_of;
using vgpu::Quiet;

namespace {

cudaError_t check_managed(const void* pointer, std::size_t bytes, const char* call) {
  const auto range = PinnedMemory::get().find(pointer);
  if (!range || !range->managed)
    return fail(cudaErrorInvalidValue,
                std::string(call) + ": not managed memory: " + vgpu::describe_address(pointer));
  if (bytes > static_cast<std::size_t>(range->start + range->bytes -
                                       static_cast<const std::byte*>(pointer)))
    return fail(cudaErrorInvalidValue, std::string(call) + ": " + std::to_string(bytes) +
                                           " bytes exceed " + vgpu::describe_address(pointer));
  return cudaSuccess;
}

cudaError_t check_place(int place, const char* call) {
  if (place == cudaCpuDeviceId || Device::exists(place)) return cudaSuccess;
  return fail(cudaErrorInvalidDevice,
              std::string(call) + ": device " + std::to_string(place) + " does not exist");
}

}  // namespace

// ---- rows ----

cudaError_t cudaMallocPitch(void** pointer, std::size_t* pitch, std::size_t width,
                            std::size_t height) {
  constexpr std::size_t kPitch = 512;
  *pitch = (width + kPitch - 1) / kPitch * kPitch;
  return cudaMalloc(pointer, *pitch * height);
}

cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                         std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  if (const auto e =
          cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr))
    return e;
  return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemset2DAsync(void* pointer, std::size_t pitch, int value, std::size_t width,
                              std::size_t height, cudaStream_t stream) {
  if (width > pitch)
    return fail(cudaErrorInvalidValue, "cudaMemset2DAsync: a row is wider than its pitch");
  for (std::size_t row = 0; row < height; ++row)
    if (const auto e =
            cudaMemsetAsync(static_cast<std::byte*>(pointer) + row * pitch, value, width, stream))
      return e;
  return cudaSuccess;
}

cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device,
                           std::size_t bytes) {
  // CUDA waits for all earlier work of both devices.
  for (const int device : {to_device, from_device})
    if (Device::exists(device)) Device::get(device).synchronize();
  const cudaError_t error = cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, nullptr);
  return error == cudaSuccess ? cudaStreamSynchronize(nullptr) : error;
}

// ---- managed memory ----

cudaError_t cudaMallocManaged(void** pointer, std::size_t bytes, unsigned flags) {
  *pointer = nullptr;
  if (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost)
    return fail(cudaErrorInvalidValue,
                "cudaMallocManaged: flags must be cudaMemAttachGlobal or cudaMemAttachHost");
  if (bytes == 0) return fail(cudaErrorInvalidValue, "cudaMallocManaged: 0 bytes");
  if (const auto e = cudaHostAlloc(pointer, bytes, cudaHostAllocMapped)) return e;
  const Quiet quiet;
  PinnedMemory::get().manage(*pointer);
  return cudaSuccess;
}

cudaError_t cudaMemAdvise(const void* pointer, std::size_t bytes, cudaMemoryAdvise advice,
                          int place) {
  const Quiet quiet;
  if (const auto e = check_managed(pointer, bytes, "cudaMemAdvise")) return e;
  if (advice < cudaMemAdviseSetReadMostly || advice > cudaMemAdviseUnsetAccessedBy)
    return fail(cudaErrorInvalidValue, "cudaMemAdvise: unknown advice");
  const bool without_place =
      advice == cudaMemAdviseSetReadMostly || advice == cudaMemAdviseUnsetReadMostly;
  return without_place ? cudaSuccess : check_place(place, "cudaMemAdvise");
}

cudaError_t cudaMemPrefetchAsync(const void* pointer, std::size_t bytes, int place,
                                 cudaStream_t stream) {
  if (queue_of(stream, "cudaMemPrefetchAsync") == nullptr) return cudaPeekAtLastError();
  const Quiet quiet;
  if (const auto e = check_managed(pointer, bytes, "cudaMemPrefetchAsync")) return e;
  return check_place(place, "cudaMemPrefetchAsync");
}

cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void* pointer, std::size_t bytes,
                                     unsigned flags) {
  if (queue_of(stream, "cudaStreamAttachMemAsync") == nullptr) return cudaPeekAtLastError();
  const Quiet quiet;
  if (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost && flags != cudaMemAttachSingle)
    return fail(cudaErrorInvalidValue, "cudaStreamAttachMemAsync: unknown flags");
  return check_managed(pointer, bytes, "cudaStreamAttachMemAsync");
}

// ---- stream-ordered memory ----

cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t stream) {
  *pointer = nullptr;
  Queue* queue = queue_of(stream, "cudaMallocAsync");
  if (queue == nullptr) return cudaPeekAtLastError();
  const Quiet quiet;
  if (queue->capturing()) return vgpu::refuse_captured(*queue, "cudaMallocAsync");
  if (bytes == 0) return cudaSuccess;
  Device& device = queue->device();
  *pointer = device.memory().allocate(bytes);
  if (*pointer != nullptr) return cudaSuccess;
  // Memory that streams have yet to free becomes available when they arrive.
  device.synchronize();
  *pointer = device.memory().allocate(bytes);
  if (*pointer != nullptr) return cudaSuccess;
  return fail(cudaErrorMemoryAllocation,
              "cudaMallocAsync: " + std::to_string(bytes) + " bytes do not fit in device " +
                  std::to_string(device.index()) + "'s memory (VGPU_MEMORY_MB)");
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  Queue* queue = queue_of(stream, "cudaFreeAsync");
  if (queue == nullptr) return cudaPeekAtLastError();
  if (pointer == nullptr) return cudaSuccess;
  Device* device = nullptr;
  {
    const Quiet quiet;
    if (queue->capturing()) return vgpu::refuse_captured(*queue, "cudaFreeAsync");
    device = Device::owner(pointer);
    const auto found = device != nullptr ? device->memory().find(pointer) : std::nullopt;
    if (!found || found->start != pointer)
      return fail(cudaErrorInvalidValue,
                  "cudaFreeAsync: not the start of a live device allocation: " +
                      vgpu::describe_address(pointer));
  }
  queue->add("free", [=] {
    if (!device->memory().free(pointer))
      vgpu::fatal("cudaFreeAsync: " + vgpu::describe_address(pointer) + " was freed twice");
  });
  return cudaSuccess;
}

namespace {

vgpu::Living<CUmemPoolHandle_st>& pools() {
  static auto* const all = new vgpu::Living<CUmemPoolHandle_st>;
  return *all;
}

cudaError_t check_pool(cudaMemPool_t pool, const char* call) {
  if (const char* reason = pools().refuse(pool))
    return fail(cudaErrorInvalidValue, std::string(call) + ": the pool " + reason);
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaMallocFromPoolAsync(void** pointer, std::size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  *pointer = nullptr;
  Queue* queue = queue_of(stream, "cudaMallocFromPoolAsync");
  if (queue == nullptr) return cudaPeekAtLastError();
  {
    const Quiet quiet;
    if (const auto e = check_pool(pool, "cudaMallocFromPoolAsync")) return e;
    if (pool->device != queue->device().index())
      return fail(cudaErrorInvalidValue, "cudaMallocFromPoolAsync: the pool is on device " +
                                             std::to_string(pool->device) + ", the stream is " +
                                             queue->name());
  }
  return cudaMallocAsync(pointer, bytes, stream);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  const Quiet quiet;
  *pool = nullptr;
  if (!Device::exists(device)) return check_place(device, "cudaDeviceGetDefaultMemPool");
  static std::mutex mutex;
  static auto* const made = new std::map<int, cudaMemPool_t>;
  const std::scoped_lock lock(mutex);
  cudaMemPool_t& of_device = (*made)[device];
  if (of_device == nullptr)
    of_device = pools().add(std::make_unique<CUmemPoolHandle_st>(CUmemPoolHandle_st{device, {}}));
  *pool = of_device;
  return cudaSuccess;
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  const Quiet quiet;
  *pool = nullptr;
  if (properties->allocType != cudaMemAllocationTypePinned ||
      properties->location.type != cudaMemLocationTypeDevice)
    return fail(cudaErrorInvalidValue, "cudaMemPoolCreate: only pinned memory of a device");
  if (properties->handleTypes != cudaMemHandleTypeNone)
    return fail(cudaErrorNotSupported,
                "cudaMemPoolCreate: pools cannot be exported here: "
                "cudaMemHandleTypePosixFileDescriptor");
  if (const auto e = check_place(properties->location.id, "cudaMemPoolCreate")) return e;
  *pool = pools().add(
      std::make_unique<CUmemPoolHandle_st>(CUmemPoolHandle_st{properties->location.id, {}}));
  return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  const Quiet quiet;
  if (const auto e = check_pool(pool, "cudaMemPoolDestroy")) return e;
  pools().bury(pool);  // its memory remains until it is freed
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  const Quiet quiet;
  if (const auto e = check_pool(pool, "cudaMemPoolSetAttribute")) return e;
  std::uint64_t stored = 0;
  std::memcpy(&stored, value, attribute == cudaMemPoolAttrReleaseThreshold ? 8 : sizeof(int));
  pool->attributes[attribute] = stored;
  return cudaSuccess;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  const Quiet quiet;
  if (const auto e = check_pool(pool, "cudaMemPoolGetAttribute")) return e;
  const std::uint64_t stored = pool->attributes[attribute];
  std::memcpy(value, &stored, attribute == cudaMemPoolAttrReleaseThreshold ? 8 : sizeof(int));
  return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t /*bytes*/) {
  const Quiet quiet;
  return check_pool(pool, "cudaMemPoolTrimTo");
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* places,
                                 std::size_t count) {
  const Quiet quiet;
  if (const auto e = check_pool(pool, "cudaMemPoolSetAccess")) return e;
  for (std::size_t i = 0; i < count; ++i) {
    const int peer = places[i].location.id;
    if (const auto e = check_place(peer, "cudaMemPoolSetAccess")) return e;
    if (peer != pool->device)
      Device::get(peer).set_peer(Device::get(pool->device),
                                 places[i].flags != cudaMemAccessFlagsProtNone);
  }
  return cudaSuccess;
}

cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t pool,
                                 cudaMemLocation* location) {
  const Quiet quiet;
  if (const auto e = check_pool(pool, "cudaMemPoolGetAccess")) return e;
  if (const auto e = check_place(location->id, "cudaMemPoolGetAccess")) return e;
  const bool can =
      location->id == pool->device || Device::get(location->id).has_peer(Device::get(pool->device));
  *flags = can ? cudaMemAccessFlagsProtReadWrite : cudaMemAccessFlagsProtNone;
  return cudaSuccess;
}

// ---- symbols ----

namespace {

// The devices that have written a symbol, and the bytes that the last of them wrote.
struct Written {
  int device;
  std::vector<std::byte> bytes;
};
struct Symbols {
  std::mutex mutex;
  std::map<const std::byte*, Written> written;  // by the first byte that was written
};
Symbols& symbols() {
  static auto* const all = new Symbols;
  return *all;
}

cudaError_t check_symbol(const char* call, std::size_t size, std::size_t bytes,
                         std::size_t offset) {
  if (offset <= size && bytes <= size - offset) return cudaSuccess;
  return fail(cudaErrorInvalidValue, std::string(call) + ": " + std::to_string(bytes) +
                                         " bytes at offset " + std::to_string(offset) +
                                         " do not fit in a symbol of " + std::to_string(size));
}

// A device's own copy of a symbol would hold other bytes.
cudaError_t check_shared(const std::byte* to, const void* from, std::size_t bytes, int device) {
  const auto* begin = static_cast<const std::byte*>(from);
  const std::scoped_lock lock(symbols().mutex);
  const auto before = symbols().written.find(to);
  if (before != symbols().written.end() && before->second.device != device &&
      !std::equal(begin, begin + bytes, before->second.bytes.begin(), before->second.bytes.end()))
    return fail(cudaErrorNotSupported,
                "cudaMemcpyToSymbol: devices " + std::to_string(before->second.device) + " and " +
                    std::to_string(device) +
                    " write different bytes, but all devices share a symbol here");
  symbols().written[to] = {device, {begin, begin + bytes}};
  return cudaSuccess;
}

}  // namespace

void* vgpu::symbol_address(const volatile void* symbol, std::size_t size) {
  const Quiet quiet;
  auto* address = static_cast<std::byte*>(const_cast<void*>(symbol));
  PinnedMemory::Range range{address, size, Device::current().index(), false};
  range.managed = true;
  PinnedMemory::get().add(range);  // fails if the program has asked before
  return address;
}

cudaError_t vgpu::copy_to_symbol(void* symbol, std::size_t size, const void* from,
                                 std::size_t bytes, std::size_t offset, cudaMemcpyKind kind,
                                 cudaStream_t stream, bool wait) {
  auto* to = static_cast<std::byte*>(symbol) + offset;
  {
    const Quiet quiet;
    if (const auto e = check_symbol("cudaMemcpyToSymbol", size, bytes, offset)) return e;
    if (kind == cudaMemcpyHostToDevice && Device::owner(from) == nullptr)
      if (const auto e = check_shared(to, from, bytes, Device::current().index())) return e;
  }
  (void)symbol_address(symbol, size);
  if (const auto e = cudaMemcpyAsync(to, from, bytes, kind, stream)) return e;
  return wait ? cudaStreamSynchronize(stream) : cudaSuccess;
}

cudaError_t vgpu::copy_from_symbol(void* to, const void* symbol, std::size_t size,
                                   std::size_t bytes, std::size_t offset, cudaMemcpyKind kind,
                                   cudaStream_t stream, bool wait) {
  {
    const Quiet quiet;
    if (const auto e = check_symbol("cudaMemcpyFromSymbol", size, bytes, offset)) return e;
  }
  (void)symbol_address(symbol, size);
  const auto* from = static_cast<const std::byte*>(symbol) + offset;
  if (const auto e = cudaMemcpyAsync(to, from, bytes, kind, stream)) return e;
  return wait ? cudaStreamSynchronize(stream) : cudaSuccess;
}
