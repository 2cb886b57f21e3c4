#include "runtime/comm/transport/cuda_ipc/device_arena.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/launch.hpp"
#include "runtime/device/memory.hpp"

namespace ringsmith::comm::cuda_ipc {

namespace {

constexpr std::size_t kAlign = 256;
// The driver keeps smaller allocations together in blocks of this size; an IPC handle would hand
// out the neighbours too.
constexpr std::size_t kBlockBytes = std::size_t{2} << 20;
constexpr std::size_t kLeastRegion = 2 * kBlockBytes;

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

class DeviceArena::Block : public CommMemory {
 public:
  Block(std::shared_ptr<DeviceArena> arena, std::uint32_t region, std::size_t offset,
        std::size_t reserved, std::byte* data, Bytes size)
      : arena_(std::move(arena)),
        region_(region),
        offset_(offset),
        reserved_(reserved),
        data_(data),
        size_(size) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() override { arena_->free(region_, offset_, reserved_); }
  [[nodiscard]] std::byte* data() const override { return data_; }
  [[nodiscard]] Bytes size() const override { return size_; }
  [[nodiscard]] Device device() const override { return arena_->communication_.device(); }

 private:
  std::shared_ptr<DeviceArena> arena_;
  std::uint32_t region_;
  std::size_t offset_, reserved_;
  std::byte* data_;
  Bytes size_;
};

DeviceArena::DeviceArena(Stream communication, Catalogue& catalogue,
                         std::shared_ptr<CommMemory> keep)
    : communication_(std::move(communication)), catalogue_(catalogue), keep_(std::move(keep)) {}

DeviceArena::~DeviceArena() {
  if (abandoned_) return;
  for (const Stretch& stretch : stretches_) (void)cudaFree(stretch.base);
}

std::uint32_t DeviceArena::add_region(std::size_t size) {
  if (stretches_.size() == kMostRegions)
    throw CommError("communication memory: " + std::to_string(kMostRegions) +
                    " regions of device memory are in use; allocate fewer, larger buffers");
  const std::size_t bytes = round_up(std::max(size, kLeastRegion), kBlockBytes);
  const auto index = static_cast<std::uint32_t>(stretches_.size());
  Region& region = catalogue_.regions[index];
  cuda_check(cudaMalloc(&region.pointer, bytes));
  stretches_.push_back({region.pointer, bytes, FreeRanges(0, bytes)});
  cudaIpcMemHandle_t handle{};
  cuda_check(cudaIpcGetMemHandle(&handle, region.pointer));
  std::memcpy(&region.handle, &handle, sizeof handle);
  region.in_block =
      reinterpret_cast<std::uintptr_t>(region.pointer) - driver_block_of(region.pointer).base;
  region.size = bytes;
  return index;
}

std::shared_ptr<CommMemory> DeviceArena::allocate(Bytes size) {
  const Device device = communication_.device();
  const DeviceGuard guard(device);
  const Stream stream = Stream::current(device);
  const std::size_t reserved = std::max(kAlign, round_up(size.value, kAlign));
  if (reserved < size.value)
    throw CommError("communication memory: " + std::to_string(size.value) +
                    " bytes are more than any device has");
  std::uint32_t region = 0;
  std::size_t offset = 0;
  std::byte* data = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::optional<std::size_t> fit;
    while (region < stretches_.size() && !(fit = stretches_[region].free.find(reserved))) ++region;
    if (!fit) {
      region = add_region(reserved);
      fit = 0;
    }
    offset = *fit;
    stretches_[region].free.take(offset, reserved);
    data = stretches_[region].base + offset;
    std::erase_if(last_uses_, [](const Event& event) { return event.has_happened(); });
    for (const Event& event : last_uses_) stream.wait(event);
  }
  auto block = std::make_shared<Block>(shared_from_this(), region, offset, reserved, data, size);
  cuda_check(cudaMemsetAsync(data, 0, reserved, stream.get()));
  return block;
}

void DeviceArena::free(std::uint32_t region, std::size_t offset, std::size_t size) {
  const Device device = communication_.device();
  const std::lock_guard lock(mutex_);
  try {
    last_uses_.push_back(Event::record(Stream::current(device)));
    last_uses_.push_back(Event::record(communication_));
    stretches_[region].free.give(offset, size);
  } catch (const Error&) {
    // The device has failed: its memory is lost with it.
  }
}

std::optional<Location> DeviceArena::locate(const std::byte* data, Bytes size) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::lock_guard lock(mutex_);
  for (std::uint32_t r = 0; r < stretches_.size(); ++r) {
    const auto base = reinterpret_cast<std::uintptr_t>(stretches_[r].base);
    if (address < base || address > base + stretches_[r].size) continue;
    if (size.value <= base + stretches_[r].size - address) return location_of(r, address - base);
  }
  return std::nullopt;
}

}  // namespace ringsmith::comm::cuda_ipc
