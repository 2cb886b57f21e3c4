#include "runtime/tensor/storage.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <utility>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/device/memory.hpp"

namespace ringsmith {

Storage::Storage(std::byte* data, Bytes size, bool owned, std::shared_ptr<void> keeper,
                 Device device)
    : data_(data), size_(size), owned_(owned), keeper_(std::move(keeper)), device_(device) {}

namespace {

std::byte* allocate_block(Bytes size, Device device) {
  return device.is_cpu() ? host_allocator::allocate(size)
                         : device_allocator::allocate(device, size);
}

void free_block(std::byte* data, Bytes size, Device device) {
  device.is_cpu() ? host_allocator::free(data, size) : device_allocator::free(device, data);
}

}  // namespace

Storage::~Storage() {
  if (owned_ && released_ == nullptr) free_block(data_, size_, device_);
}

std::shared_ptr<Storage> Storage::allocate(Bytes size, Device device) {
  return std::shared_ptr<Storage>(
      new Storage(allocate_block(size, device), size, true, nullptr, device));
}

std::shared_ptr<Storage> Storage::adopt(std::byte* data, Bytes size, std::shared_ptr<void> keeper,
                                        Device device) {
  return std::shared_ptr<Storage>(new Storage(data, size, false, std::move(keeper), device));
}

void Storage::release(const char* why) {
  require(owned_, "Storage::release: adopted memory belongs to its owner");
  if (std::exchange(released_, why) == nullptr) free_block(data_, size_, device_);
}

void Storage::restore() {
  if (released_ == nullptr) return;
  data_ = allocate_block(size_, device_);
  released_ = nullptr;
}

void Storage::refuse() const {
  throw UsageError(std::string("the tensor's memory is released: ") + released_);
}

void Storage::record_stream(const Stream& stream) const {
  if (owned_ && released_ == nullptr && device_.is_cuda())
    device_allocator::record_use(device_, data_, stream);
}

}  // namespace ringsmith

#if defined(__SANITIZE_ADDRESS__)
#define RINGSMITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RINGSMITH_ASAN 1
#endif
#endif
#ifdef RINGSMITH_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace ringsmith::host_allocator {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kHugeFrom = std::size_t{4} << 20;

class Cache {
 public:
  std::byte* take(std::size_t size) {
    const SizeClass c = size_class_of(size);
    const std::scoped_lock lock(mutex_);
    if (c.index >= free_.size())
      throw UsageError("cannot allocate " + std::to_string(size) + " bytes");
    ++stats_.allocations;
    std::byte* block = nullptr;
    auto& list = free_[c.index];
    if (!list.empty()) {
      block = list.back();
      list.pop_back();
      ASAN_UNPOISON_MEMORY_REGION(block, c.size);
    } else {
      block = from_system(c.size);
      ++stats_.system_allocations;
      stats_.reserved += Bytes(c.size);
    }
    stats_.current += Bytes(size);
    stats_.peak = std::max(stats_.peak, stats_.current);
    return block;
  }

  void give(std::byte* block, std::size_t size) {
    const SizeClass c = size_class_of(size);
    const std::scoped_lock lock(mutex_);
    stats_.current = stats_.current - Bytes(size);
    ASAN_POISON_MEMORY_REGION(block, c.size);
    free_[c.index].push_back(block);
    sizes_[c.index] = c.size;
  }

  void release() {
    const std::scoped_lock lock(mutex_);
    for (std::size_t i = 0; i < free_.size(); ++i) {
      for (std::byte* block : free_[i]) {
        ASAN_UNPOISON_MEMORY_REGION(block, sizes_[i]);
        std::free(block);
        stats_.reserved = stats_.reserved - Bytes(sizes_[i]);
      }
      free_[i].clear();
    }
  }

  AllocatorStats stats() {
    const std::scoped_lock lock(mutex_);
    return stats_;
  }
  void reset_peak() {
    const std::scoped_lock lock(mutex_);
    stats_.peak = stats_.current;
  }

 private:
  static std::byte* from_system(std::size_t size) {
    const bool huge = size >= kHugeFrom;
    const std::size_t alignment = huge ? kHugePage : kAlignment;
    // aligned_alloc requires a multiple of the alignment.
    void* block = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (block == nullptr)
      throw OutOfMemoryError("out of memory: the system has no " + std::to_string(size) +
                             " bytes left for a tensor");
    if (huge) madvise(block, size, MADV_HUGEPAGE);  // a hint, whose failure is harmless
    return static_cast<std::byte*>(block);
  }

  std::mutex mutex_;
  std::array<std::vector<std::byte*>, SizeClass::kCount> free_;
  std::array<std::size_t, SizeClass::kCount> sizes_{};
  AllocatorStats stats_;
};

// Never destroyed, because static tensors may outlive any other static object.
Cache& cache() {
  static auto* const instance = new Cache;
  return *instance;
}

}  // namespace

std::byte* allocate(Bytes size) { return cache().take(size.value); }
void free(std::byte* block, Bytes size) { cache().give(block, size.value); }
AllocatorStats stats() { return cache().stats(); }
void reset_peak() { cache().reset_peak(); }
void release_cached() { cache().release(); }
Bytes class_size(Bytes size) { return Bytes(size_class_of(size.value).size); }

}  // namespace ringsmith::host_allocator
