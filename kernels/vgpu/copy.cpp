// Copies and fills. The calling thread checks the pointers; the stream's worker copies the bytes,
// outside of Quiet, so that the sanitizers see the accesses.
#include <cstring>
#include <string>

#include "kernels/vgpu/api/runtime.hpp"
#include "kernels/vgpu/counters.hpp"
#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/ipc.hpp"
#include "kernels/vgpu/memory.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/queue.hpp"
#include "kernels/vgpu/rights.hpp"

using vgpu::Device;
using vgpu::fail;
using vgpu::Queue;
using vgpu::queue_of;
using vgpu::Quiet;

namespace {

constexpr std::uint32_t kAllKeys = ~1U;  // a copy engine can access every device

class CopyEngine {
 public:
  CopyEngine() { vgpu::in_copy = true; }
  ~CopyEngine() { vgpu::in_copy = false; }
  CopyEngine(const CopyEngine&) = delete;
  CopyEngine& operator=(const CopyEngine&) = delete;

 private:
  vgpu::DeviceRights rights_{kAllKeys};
};

enum class Side : std::uint8_t { host, device, any };

cudaError_t check_side(const char* call, const char* which, const void* p, std::size_t bytes,
                       Side side) {
  if (p == nullptr)
    return fail(cudaErrorInvalidValue, std::string(call) + ": the " + which + " is null");
  const Device* owner = Device::owner(p);
  const auto import = owner == nullptr ? vgpu::Imports::get().find(p) : std::nullopt;
  const auto pinned =
      owner == nullptr && !import ? vgpu::PinnedMemory::get().find(p) : std::nullopt;
  if (side != Side::any && !(pinned && pinned->managed) &&
      (side == Side::device) != (owner != nullptr || import))
    return fail(cudaErrorInvalidValue, std::string(call) + ": the kind says that the " + which +
                                           " is " + (side == Side::device ? "device" : "host") +
                                           " memory, but it is " + vgpu::describe_address(p));
  const std::byte* end = nullptr;
  if (import) {
    end = import->start + import->bytes;
  } else if (owner != nullptr) {
    const auto a = owner->memory().find(p);
    if (!a)
      return fail(cudaErrorInvalidValue,
                  std::string(call) + ": the " + which + " is " + vgpu::describe_address(p));
    end = a->start + a->bytes;
  } else if (pinned) {
    end = pinned->start + pinned->bytes;
  } else {
    return cudaSuccess;
  }
  const auto left = static_cast<std::size_t>(end - static_cast<const std::byte*>(p));
  if (bytes > left)
    return fail(cudaErrorInvalidValue, std::string(call) + ": " + std::to_string(bytes) +
                                           " bytes do not fit in the " + which + ", " +
                                           vgpu::describe_address(p));
  return cudaSuccess;
}

cudaError_t check_both(const char* call, const void* to, std::size_t to_bytes, const void* from,
                       std::size_t from_bytes, cudaMemcpyKind kind) {
  Side to_side = Side::any, from_side = Side::any;
  switch (kind) {
    case cudaMemcpyDefault:
      break;
    case cudaMemcpyHostToHost:
      to_side = from_side = Side::host;
      break;
    case cudaMemcpyHostToDevice:
      to_side = Side::device, from_side = Side::host;
      break;
    case cudaMemcpyDeviceToHost:
      to_side = Side::host, from_side = Side::device;
      break;
    case cudaMemcpyDeviceToDevice:
      to_side = from_side = Side::device;
      break;
    default:
      return fail(cudaErrorInvalidMemcpyDirection, std::string(call) + ": unknown kind");
  }
  if (const auto e = check_side(call, "target", to, to_bytes, to_side)) return e;
  return check_side(call, "source", from, from_bytes, from_side);
}

void add_copy(Queue& queue, const char* name, void* to, std::size_t to_pitch, const void* from,
              std::size_t from_pitch, std::size_t width, std::size_t height) {
  ++vgpu::call_counters().copies;
  queue.add(name, [=] {
    vgpu::count_bytes(name, width * height);
    const CopyEngine engine;
    const vgpu::Loud loud;
    for (std::size_t row = 0; row < height; ++row)
      std::memcpy(static_cast<std::byte*>(to) + row * to_pitch,
                  static_cast<const std::byte*>(from) + row * from_pitch, width);
  });
}

}  // namespace

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  Queue* queue = queue_of(stream, "cudaMemcpyAsync");
  if (queue == nullptr) return cudaPeekAtLastError();
  if (bytes == 0) return cudaSuccess;
  {
    const Quiet quiet;
    if (const auto e = check_both("cudaMemcpyAsync", to, bytes, from, bytes, kind)) return e;
  }
  add_copy(*queue, "copy", to, 0, from, 0, bytes, 1);
  return cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                std::size_t bytes, cudaStream_t stream) {
  {
    const Quiet quiet;
    const Device* to_owner = Device::owner(to);
    const Device* from_owner = Device::owner(from);
    if (bytes > 0 && to_owner != nullptr && from_owner != nullptr &&
        (to_owner->index() != to_device || from_owner->index() != from_device))
      return fail(cudaErrorInvalidValue, "cudaMemcpyPeerAsync: target is " +
                                             vgpu::describe_address(to) + ", source is " +
                                             vgpu::describe_address(from));
  }
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  Queue* queue = queue_of(stream, "cudaMemcpy2DAsync");
  if (queue == nullptr) return cudaPeekAtLastError();
  if (width == 0 || height == 0) return cudaSuccess;
  {
    const Quiet quiet;
    if (width > to_pitch || width > from_pitch)
      return fail(cudaErrorInvalidValue, "cudaMemcpy2DAsync: a row is wider than its pitch");
    if (const auto e = check_both("cudaMemcpy2DAsync", to, (height - 1) * to_pitch + width, from,
                                  (height - 1) * from_pitch + width, kind))
      return e;
  }
  add_copy(*queue, "copy", to, to_pitch, from, from_pitch, width, height);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* pointer, int value, std::size_t bytes, cudaStream_t stream) {
  Queue* queue = queue_of(stream, "cudaMemsetAsync");
  if (queue == nullptr) return cudaPeekAtLastError();
  if (bytes == 0) return cudaSuccess;
  {
    const Quiet quiet;
    if (const auto e = check_side("cudaMemsetAsync", "target", pointer, bytes, Side::any)) return e;
    if (Device::owner(pointer) == nullptr && !vgpu::Imports::get().find(pointer) &&
        !vgpu::PinnedMemory::get().find(pointer))
      return fail(cudaErrorInvalidValue,
                  "cudaMemsetAsync: the target must be device or pinned memory, but it is " +
                      vgpu::describe_address(pointer));
  }
  ++vgpu::call_counters().copies;
  queue->add("fill", [=] {
    vgpu::count_bytes("fill", bytes);
    const CopyEngine engine;
    const vgpu::Loud loud;
    std::memset(pointer, value, bytes);
  });
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (const auto e = cudaMemcpyAsync(to, from, bytes, kind, nullptr)) return e;
  return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemset(void* pointer, int value, std::size_t bytes) {
  return cudaMemsetAsync(pointer, value, bytes, nullptr);
}
