#include "runtime/comm/device/peers.hpp"

#include <cstring>
#include <new>
#include <thread>

#include "kernels/cuda/launch.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith::comm::cuda_ipc {

static_assert(sizeof(cudaIpcMemHandle_t) == kHandleBytes &&
              sizeof(cudaIpcEventHandle_t) == kHandleBytes);

Peers::Peers(Bootstrap& bootstrap, Host& host, Device device, const std::vector<Whereabouts>& ranks)
    : host_(host), device_(device), ranks_(ranks) {
  memory_ = host_.arena()->allocate(Bytes(sizeof(Catalogue)));
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
  const auto offset = host_.arena()->offset_of(memory_->data(), memory_->size());
  const auto records = bootstrap.all_gather(std::to_string(offset->value));
  for (int r = 0; r < host_.size(); ++r)
    catalogues_.push_back(
        std::launder(reinterpret_cast<Catalogue*>(host_.base(r) + std::stoull(records[at(r)]))));
  enable_peer_access();
}

void Peers::meet(Bootstrap& bootstrap) {
  // Whoever has got everybody's answer knows that everybody has filled its catalogue.
  (void)bootstrap.all_gather("ready");
}

bool Peers::in_my_process(int rank) const {
  return ranks_[at(rank)].process == ranks_[at(host_.rank())].process;
}

void Peers::enable_peer_access() const {
  for (int r = 0; r < host_.size(); ++r) {
    const Device theirs = ranks_[at(r)].device;
    if (!in_my_process(r) || theirs == device_) continue;
    const cudaError_t code = cudaDeviceEnablePeerAccess(theirs.index, 0);
    if (code == cudaErrorPeerAccessAlreadyEnabled)
      (void)cudaGetLastError();
    else
      cuda_check(code);
  }
}

std::byte* Peers::address(int rank, Location location) {
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

CUevent_st* Peers::event(int rank, std::uint32_t index) {
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

void Peers::release_waiters() noexcept {
  const std::lock_guard lock(mutex_);
  try {
    const DeviceGuard guard(device_);
    const Stream idle = Stream::create(device_);
    for (const auto& [key, event] : opened_events_)
      if (event != nullptr) (void)cudaEventRecord(event, idle.get());
  } catch (const Error&) {
    // The device has failed: nothing waits there any more.
  }
}

int Peers::find_laggard() noexcept {
  try {
    const DeviceGuard guard(device_);
    for (int r = 0; r < host_.size(); ++r) {
      const cudaError_t code = cudaEventQuery(event(r, kReadyEvent));
      if (code == cudaSuccess) continue;
      (void)cudaGetLastError();
      if (code == cudaErrorNotReady) return r;
    }
  } catch (const Error&) {
    // Its process is gone, or the device has failed: somebody will say so.
  }
  return -1;
}

void Peers::close() noexcept {
  if (closed_) return;
  closed_ = true;
  for (const auto& [key, base] : opened_regions_)
    if (base != nullptr) (void)cudaIpcCloseMemHandle(base);
  for (const auto& [key, event] : opened_events_)
    if (event != nullptr) (void)cudaEventDestroy(event);
  mine().closed.store(1, std::memory_order_release);
}

void Peers::abandon() noexcept {
  closed_ = true;
  own_events_.clear();
}

bool Peers::wait_for_others_to_close(std::chrono::milliseconds most) const {
  const auto end = std::chrono::steady_clock::now() + most;
  for (int r = 0; r < host_.size();) {
    if (of(r).closed.load(std::memory_order_acquire) != 0 || host_.is_gone(r)) {
      ++r;
      continue;
    }
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

Peers::~Peers() {
  close();
  for (CUevent_st* event : own_events_) (void)cudaEventDestroy(event);
}

}  // namespace ringsmith::comm::cuda_ipc
