#include "runtime/comm/device/device_memory.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>

#include "kernels/cuda/launch.hpp"
#include "runtime/device/capture_guard.hpp"
#include "runtime/device/driver_gate.hpp"
#include "runtime/device/memory.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith::comm::cuda_ipc {

static_assert(sizeof(cudaIpcMemHandle_t) == kHandleBytes &&
              sizeof(cudaIpcEventHandle_t) == kHandleBytes);

DevicePeers::DevicePeers(Bootstrap& bootstrap, Segments& segments, Device device,
                         const std::vector<Whereabouts>& ranks)
    : segments_(segments), device_(device), ranks_(ranks) {
  memory_ = segments_.arena()->allocate(Bytes(sizeof(Catalogue)));
  auto* const catalogue = new (memory_->data()) Catalogue{};
  for (SharedEvent& event : catalogue->events) {
    cudaEvent_t made = nullptr;
    cuda_check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming | cudaEventInterprocess));
    own_events_.push_back(made);
    cudaIpcEventHandle_t handle{};
    cuda_check(cudaIpcGetEventHandle(&handle, made));
    std::memcpy(&event.handle, &handle, sizeof handle);
    event.pointer = made;
  }
  const auto offset = segments_.arena()->offset_of(memory_->data(), memory_->size());
  const auto records = bootstrap.all_gather(std::to_string(offset->value));
  for (int r = 0; r < segments_.size(); ++r)
    catalogues_.push_back(std::launder(
        reinterpret_cast<Catalogue*>(segments_.base(r) + std::stoull(records[at(r)]))));
}

void DevicePeers::meet(Bootstrap& bootstrap) { (void)bootstrap.all_gather("ready"); }

bool DevicePeers::in_my_process(int rank) const {
  return ranks_[at(rank)].process == ranks_[at(segments_.rank())].process;
}

void DevicePeers::enable_peer_access() const {
  for (int r = 0; r < segments_.size(); ++r) {
    const Device theirs = ranks_[at(r)].device;
    if (!in_my_process(r) || theirs == device_) continue;
    const cudaError_t code = cudaDeviceEnablePeerAccess(theirs.index, 0);
    if (code == cudaErrorPeerAccessAlreadyEnabled)
      (void)cudaGetLastError();
    else
      cuda_check(code);
  }
}

std::byte* DevicePeers::address(int rank, Location location) {
  const std::uint32_t index = region_of(location);
  const Region& region = of(rank).regions[index];
  if (in_my_process(rank)) return region.pointer + offset_of(location);
  void*& base = opened_regions_[{rank, index}];
  if (base == nullptr) {
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, &region.handle, sizeof handle);
    cuda_check(cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess));
  }
  return static_cast<std::byte*>(base) + region.in_block + offset_of(location);
}

CUevent_st* DevicePeers::event(int rank, std::uint32_t index) {
  const SharedEvent& event = of(rank).events[index];
  if (in_my_process(rank)) return static_cast<CUevent_st*>(event.pointer);
  const std::lock_guard lock(mutex_);
  CUevent_st*& opened = opened_events_[{rank, index}];
  if (opened == nullptr) {
    cudaIpcEventHandle_t handle;
    std::memcpy(&handle, &event.handle, sizeof handle);
    cuda_check(cudaIpcOpenEventHandle(&opened, handle));
  }
  return opened;
}

void DevicePeers::release_waiters() noexcept {
  const std::lock_guard lock(mutex_);
  try {
    const DeviceGuard guard(device_);
    const Stream idle = Stream::create(device_);
    for (const auto& [key, event] : opened_events_)
      if (event != nullptr) (void)cudaEventRecord(event, idle.get());
  } catch (const Error&) {
    // The device has failed, so nothing waits there any more.
  }
}

int DevicePeers::find_laggard() noexcept {
  try {
    const DeviceGuard guard(device_);
    const CaptureGuard beside_captures;
    for (int r = 0; r < segments_.size(); ++r) {
      const cudaError_t code = cudaEventQuery(event(r, kReadyEvent));
      if (code == cudaSuccess) continue;
      (void)cudaGetLastError();
      if (code == cudaErrorNotReady) return r;
    }
  } catch (const Error&) {
    // A peer's process is gone, or the device has failed. Other code reports it.
  }
  return -1;
}

void DevicePeers::close() noexcept {
  if (closed_) return;
  closed_ = true;
  for (const auto& [key, base] : opened_regions_)
    if (base != nullptr) (void)cudaIpcCloseMemHandle(base);
  for (const auto& [key, event] : opened_events_)
    if (event != nullptr) (void)cudaEventDestroy(event);
  mine().closed.store(1, std::memory_order_release);
}

void DevicePeers::abandon() noexcept {
  closed_ = true;
  own_events_.clear();
}

bool DevicePeers::wait_for_others_to_close(std::chrono::milliseconds most) const {
  const auto end = std::chrono::steady_clock::now() + most;
  for (int r = 0; r < segments_.size();) {
    if (of(r).closed.load(std::memory_order_acquire) != 0 || segments_.is_gone(r)) {
      ++r;
      continue;
    }
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

DevicePeers::~DevicePeers() {
  close();
  for (CUevent_st* event : own_events_) (void)cudaEventDestroy(event);
}

namespace {

constexpr std::size_t kAlign = 256;
// The driver packs smaller allocations into blocks of this size; an IPC handle exposes the whole
// block.
constexpr std::size_t kBlockBytes = std::size_t{2} << 20;
constexpr std::size_t kLeastRegion = 2 * kBlockBytes;

}  // namespace

class DeviceArena::ArenaBlock : public CommMemory {
 public:
  ArenaBlock(std::shared_ptr<DeviceArena> arena, std::uint32_t region, std::size_t offset,
             std::size_t reserved, std::byte* data, Bytes size)
      : arena_(std::move(arena)),
        region_(region),
        offset_(offset),
        reserved_(reserved),
        data_(data),
        size_(size) {}
  ArenaBlock(const ArenaBlock&) = delete;
  ArenaBlock& operator=(const ArenaBlock&) = delete;
  ~ArenaBlock() override { arena_->free(region_, offset_, reserved_); }
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
  const DriverCall gate;
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
  const DriverCall gate;  // before mutex_, which locate() locks in a joint launch
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
    std::erase_if(last_uses_, [](const ringsmith::Event& event) { return event.has_happened(); });
    for (const ringsmith::Event& event : last_uses_) stream.wait(event);
  }
  auto block =
      std::make_shared<ArenaBlock>(shared_from_this(), region, offset, reserved, data, size);
  cuda_check(cudaMemsetAsync(data, 0, reserved, stream.get()));
  return block;
}

void DeviceArena::free(std::uint32_t region, std::size_t offset, std::size_t size) {
  const Device device = communication_.device();
  const std::lock_guard lock(mutex_);
  try {
    last_uses_.push_back(ringsmith::Event::record(Stream::current(device)));
    last_uses_.push_back(ringsmith::Event::record(communication_));
    stretches_[region].free.give(offset, size);
  } catch (const Error&) {
    // The device has failed, so its memory is lost, too.
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
