#include "runtime/device/pinned.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/base/allocator.hpp"
#include "runtime/device/cuda_check.hpp"

namespace ringsmith {

namespace {

class PinnedCache {
 public:
  // Never destroyed, as the streams.
  static PinnedCache& instance() {
    static auto* const cache = new PinnedCache;
    return *cache;
  }

  std::byte* take(SizeClass c) {
    require(c.index < SizeClass::kCount,
            "cannot pin " + std::to_string(c.size) + " bytes of host memory");
    const std::scoped_lock lock(mutex_);
    ++stats_.allocations;
    stats_.current += Bytes(c.size);
    stats_.peak = std::max(stats_.peak, stats_.current);
    std::deque<Free>& blocks = free_[c.index];
    if (!blocks.empty() && blocks.front().busy.has_happened()) {  // the oldest is done first
      std::byte* data = blocks.front().data;
      blocks.pop_front();
      return data;
    }
    void* data = nullptr;
    cuda_check(cudaHostAlloc(&data, c.size, cudaHostAllocPortable));
    ++stats_.system_allocations;
    stats_.reserved += Bytes(c.size);
    sizes_[c.index] = c.size;
    return static_cast<std::byte*>(data);
  }

  void give(std::byte* data, std::size_t size_class, Event busy) {
    const std::scoped_lock lock(mutex_);
    stats_.current = stats_.current - Bytes(sizes_[size_class]);
    free_[size_class].push_back({data, std::move(busy)});
  }

  void release() {
    const std::scoped_lock lock(mutex_);
    for (std::size_t c = 0; c < SizeClass::kCount; ++c)
      while (!free_[c].empty() && free_[c].front().busy.has_happened()) {
        cuda_check(cudaFreeHost(free_[c].front().data));
        free_[c].pop_front();
        stats_.reserved = stats_.reserved - Bytes(sizes_[c]);
      }
  }

  AllocatorStats stats() {
    const std::scoped_lock lock(mutex_);
    return stats_;
  }

 private:
  struct Free {
    std::byte* data;
    Event busy;
  };
  std::mutex mutex_;
  std::array<std::deque<Free>, SizeClass::kCount> free_;
  std::array<std::size_t, SizeClass::kCount> sizes_{};
  AllocatorStats stats_;
};

}  // namespace

PinnedBlock::PinnedBlock(Bytes size) {
  const SizeClass c = size_class_of(size.value);
  data_ = PinnedCache::instance().take(c);
  class_ = c.index;
}

PinnedBlock::~PinnedBlock() { PinnedCache::instance().give(data_, class_, std::move(busy_)); }

namespace pinned_allocator {
AllocatorStats stats() { return PinnedCache::instance().stats(); }
void release_cached() { PinnedCache::instance().release(); }
}  // namespace pinned_allocator

}  // namespace ringsmith
