#include "runtime/device/transfer.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/device/capture.hpp"
#include "runtime/device/cuda_check.hpp"
#include "runtime/device/driver_gate.hpp"
#include "runtime/device/findings.hpp"

namespace ringsmith {

namespace {

constexpr std::size_t kPiece = std::size_t{16} << 20;  // bytes of the largest staging block

// Calls f(offset, bytes) for each piece.
template <class F>
void in_pieces(std::size_t size, const F& f) {
  for (std::size_t at = 0; at < size; at += kPiece) f(at, std::min(kPiece, size - at));
}

// What a captured step cannot do with the host's memory, and the remedy.
constexpr const char* kFromHost =
    "copy from the host to a GPU, because each replay would copy the same host memory: copy before "
    "the replay, into memory that the step reads";
constexpr const char* kToHost =
    "read a GPU's memory on the host (item(), cpu(), a copy), because its kernels have not run: "
    "read results after the replay";

void to_device(std::byte* to, Device device, const std::byte* from, std::size_t size) {
  capture::refuse(kFromHost);
  const DeviceGuard guard(device);
  const Stream stream = Stream::current(device);
  if (PinnedBlock* block = PinnedBlock::around(from, Bytes(size))) {
    cuda_check(cudaMemcpyAsync(to, from, size, cudaMemcpyHostToDevice, stream.get()));
    block->release_after(stream);
    return;
  }
  in_pieces(size, [&](std::size_t at, std::size_t bytes) {
    PinnedBlock staging{Bytes(bytes)};
    std::memcpy(staging.data(), from + at, bytes);
    cuda_check(
        cudaMemcpyAsync(to + at, staging.data(), bytes, cudaMemcpyHostToDevice, stream.get()));
    staging.release_after(stream);
  });
}

void to_host(std::byte* to, const std::byte* from, Device device, std::size_t size) {
  capture::refuse(kToHost);
  const DeviceGuard guard(device);
  const Stream stream = Stream::current(device);
  in_pieces(size, [&](std::size_t at, std::size_t bytes) {
    const PinnedBlock staging{Bytes(bytes)};
    cuda_check(
        cudaMemcpyAsync(staging.data(), from + at, bytes, cudaMemcpyDeviceToHost, stream.get()));
    stream.synchronize();
    std::memcpy(to + at, staging.data(), bytes);
  });
  findings::look();
}

void between_devices(std::byte* to, Device target, const std::byte* from, Device source,
                     std::size_t size) {
  const DeviceGuard guard(source);
  const Stream stream = Stream::current(source);
  if (target == source) {
    cuda_check(cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice, stream.get()));
    return;
  }
  capture::refuse(
      "copy between GPUs: capture the work of each GPU in a graph, and copy between them");
  (void)enable_peer_access(source, target);  // otherwise the driver copies through the host
  const Stream after = Stream::current(target);
  stream.wait(after);  // pending work may still access the target's old contents
  cuda_check(cudaMemcpyPeerAsync(to, target.index, from, source.index, size, stream.get()));
  after.wait(stream);
}

}  // namespace

void transfer(std::byte* to, Device to_where, const std::byte* from, Device from_where,
              Bytes size) {
  if (size.value == 0) return;
  if (to_where.is_cpu() && from_where.is_cpu())
    std::memcpy(to, from, size.value);
  else if (from_where.is_cpu())
    to_device(to, to_where, from, size.value);
  else if (to_where.is_cpu())
    to_host(to, from, from_where, size.value);
  else
    between_devices(to, to_where, from, from_where, size.value);
}

bool enable_peer_access(Device device, Device peer) {
  static std::mutex mutex;
  static auto* const known = new std::map<std::pair<int, int>, bool>;
  if (device == peer) return true;
  const std::scoped_lock lock(mutex);
  const auto [entry, fresh] = known->try_emplace({device.index, peer.index}, false);
  if (!fresh) return entry->second;
  int can = 0;
  cuda_check(cudaDeviceCanAccessPeer(&can, device.index, peer.index));
  if (can == 0) return false;
  const DeviceGuard guard(device);
  const cudaError_t code = cudaDeviceEnablePeerAccess(peer.index, 0);
  if (code == cudaErrorPeerAccessAlreadyEnabled)
    (void)cudaGetLastError();
  else
    cuda_check(code);
  entry->second = true;
  return true;
}

namespace {

// The blocks in use, by address, and the free ones, by size class.
struct PinnedCache {
  struct Free {
    std::byte* data;
    std::vector<Event> busy;
    [[nodiscard]] bool is_idle() const {
      return std::ranges::all_of(busy, [](const Event& e) { return e.has_happened(); });
    }
  };
  std::mutex mutex;
  std::map<const std::byte*, PinnedBlock*> living;
  std::array<std::deque<Free>, SizeClass::kCount> free;
  std::array<std::size_t, SizeClass::kCount> sizes{};
  AllocatorStats stats;
};

// Never destroyed, like the streams.
PinnedCache& pinned() {
  static auto* const cache = new PinnedCache;
  return *cache;
}

}  // namespace

PinnedBlock::PinnedBlock(Bytes size) {
  const SizeClass c = size_class_of(size.value);
  require(c.index < SizeClass::kCount,
          "cannot pin " + std::to_string(c.size) + " bytes of host memory");
  class_ = c.index;
  PinnedCache& cache = pinned();
  const auto hand_out = [&](std::byte* data) {
    data_ = data;
    cache.living[data_] = this;
    ++cache.stats.allocations;
    cache.stats.current += Bytes(c.size);
    cache.stats.peak = std::max(cache.stats.peak, cache.stats.current);
  };
  {
    const std::scoped_lock lock(cache.mutex);
    std::deque<PinnedCache::Free>& blocks = cache.free[class_];
    if (!blocks.empty() && blocks.front().is_idle()) {  // the oldest is done first
      hand_out(blocks.front().data);
      blocks.pop_front();
      return;
    }
  }
  const DriverCall gate;  // before the mutex: driver_gate.hpp
  void* data = nullptr;
  cuda_check(cudaHostAlloc(&data, c.size, cudaHostAllocPortable));
  const std::scoped_lock lock(cache.mutex);
  hand_out(static_cast<std::byte*>(data));
  ++cache.stats.system_allocations;
  cache.stats.reserved += Bytes(c.size);
  cache.sizes[class_] = c.size;
}

PinnedBlock::~PinnedBlock() {
  PinnedCache& cache = pinned();
  const std::scoped_lock lock(cache.mutex);
  cache.living.erase(data_);
  cache.stats.current = cache.stats.current - Bytes(cache.sizes[class_]);
  cache.free[class_].push_back({data_, std::move(busy_)});
}

PinnedBlock* PinnedBlock::around(const std::byte* data, Bytes size) {
  PinnedCache& cache = pinned();
  const std::scoped_lock lock(cache.mutex);
  const auto after = cache.living.upper_bound(data);
  if (after == cache.living.begin()) return nullptr;
  const auto& [begin, block] = *std::prev(after);
  return data + size.value <= begin + cache.sizes[block->class_] ? block : nullptr;
}

Fetch::Fetch(const std::byte* from, Device device, Bytes size) {
  capture::refuse(kToHost);
  block_ = std::make_unique<PinnedBlock>(size);
  const DeviceGuard guard(device);
  const Stream stream = Stream::current(device);
  cuda_check(
      cudaMemcpyAsync(block_->data(), from, size.value, cudaMemcpyDeviceToHost, stream.get()));
  block_->release_after(stream);
  done_ = Event::record(stream);
}

const std::byte* Fetch::wait() const {
  done_.synchronize();
  findings::look();
  return block_->data();
}

namespace pinned_allocator {

AllocatorStats stats() {
  const std::scoped_lock lock(pinned().mutex);
  return pinned().stats;
}

void release_cached() {
  PinnedCache& cache = pinned();
  const DriverCall gate;
  const std::scoped_lock lock(cache.mutex);
  for (std::size_t c = 0; c < SizeClass::kCount; ++c)
    for (std::deque<PinnedCache::Free>& blocks = cache.free[c];
         !blocks.empty() && blocks.front().is_idle(); blocks.pop_front()) {
      cuda_check(cudaFreeHost(blocks.front().data));
      cache.stats.reserved = cache.stats.reserved - Bytes(cache.sizes[c]);
    }
}

}  // namespace pinned_allocator

}  // namespace ringsmith
