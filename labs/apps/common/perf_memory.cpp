#include "labs/apps/common/perf_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "labs/apps/common/perf_data.hpp"
#include "runtime/device/cuda_check.hpp"
#include "runtime/device/memory.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith::apps {

namespace {

constexpr std::byte kGuardByte{0xa5};

void copy(void* to, const void* from, std::size_t bytes, Device device) {
  const DeviceGuard guard(device);
  const Stream stream = Stream::current(device);
  cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.get()));
  stream.synchronize();
}

}  // namespace

PerfMemory::PerfMemory(comm::ProcessGroup& group, bool own, std::size_t bytes, bool two) {
  first_ = make(group, own, bytes + 2 * kGuard);
  second_ = two ? make(group, own, bytes + 2 * kGuard) : first_;
}

std::byte* PerfMemory::make(comm::ProcessGroup& group, bool own, std::size_t bytes) {
  const Device device = group.device();
  if (own) {
    auto memory = group.allocate_on(device, Bytes(bytes));
    keep_.push_back(memory);
    return memory->data();
  }
  if (device.is_cuda()) {
    std::byte* const memory = device_allocator::allocate(device, Bytes(bytes));
    keep_.emplace_back(
        memory, [device](void* p) { device_allocator::free(device, static_cast<std::byte*>(p)); });
    return memory;
  }
  constexpr std::size_t kAlignment = 2 << 20;  // that of a huge page
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0, rounded);
  keep_.emplace_back(memory, [](void* p) { std::free(p); });
  return static_cast<std::byte*>(memory);
}

void set_guards(comm::Buffer data) {
  std::memset(data.data() - PerfMemory::kGuard, static_cast<int>(kGuardByte), PerfMemory::kGuard);
  std::memset(data.data() + data.size().value, static_cast<int>(kGuardByte), PerfMemory::kGuard);
}

std::size_t broken_guards(comm::Buffer data) {
  const auto broken = [](const std::byte* p) {
    return std::count_if(p, p + PerfMemory::kGuard, [](std::byte v) { return v != kGuardByte; });
  };
  return static_cast<std::size_t>(broken(data.data() - PerfMemory::kGuard) +
                                  broken(data.data() + data.size().value));
}

HostView::HostView(comm::Buffer data, Device device) : data_(data), view_(data), device_(device) {
  if (device.is_cpu()) return;
  copy_.resize(data.size().value + 2 * PerfMemory::kGuard);
  view_ = {copy_.data() + PerfMemory::kGuard, data.count(), data.dtype()};
}

void HostView::fetch() {
  if (!copy_.empty()) copy(copy_.data(), data_.data() - PerfMemory::kGuard, copy_.size(), device_);
}

void HostView::store() {
  if (!copy_.empty()) copy(data_.data() - PerfMemory::kGuard, copy_.data(), copy_.size(), device_);
}

void clear(comm::Buffer data, Device device) {
  if (device.is_cpu()) return fill_zero(data);
  if (data.size().value == 0) return;
  const DeviceGuard guard(device);
  cuda_check(cudaMemsetAsync(data.data(), 0, data.size().value, Stream::current(device).get()));
}

void wait_for_device(Device device) {
  if (device.is_cuda()) Stream::current(device).synchronize();
}

}  // namespace ringsmith::apps
