#include "kernels/vgpu/arena.hpp"

#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/rights.hpp"

namespace vgpu {

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kBlock = 2 << 20;
constexpr std::size_t kSmall = 1 << 20;  // up to here allocations share blocks
constexpr std::size_t kAlignment = 256;
constexpr unsigned char kPattern = 0xb7;
constexpr int kFresh = 0xff;
constexpr std::size_t kDeadKept = 4096;

std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

// The last record at or before the address.
template <class Map>
auto at_or_before(const Map& map, const void* address) {
  auto it = map.upper_bound(static_cast<const std::byte*>(address));
  return it == map.begin() ? map.end() : std::prev(it);
}

}  // namespace

Arena::Arena(int device, std::byte* base, std::size_t span, std::size_t capacity, int key)
    : device_(device), base_(base), span_(span), capacity_(capacity), key_(key), next_block_(base) {
  file_ = ::memfd_create("vgpu", MFD_CLOEXEC);
  if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(span)) != 0)
    fatal("no anonymous file for the memory of device " + std::to_string(device));
}

void Arena::map(std::byte* at, std::size_t bytes) {
  void* got = ::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_,
                     static_cast<off_t>(offset(at)));
  if (got == MAP_FAILED)
    fatal("cannot map " + std::to_string(bytes) +
          " bytes of device memory: too many allocations, or no memory left on this machine");
  if (key_ >= 0) ::pkey_mprotect(at, bytes, PROT_READ | PROT_WRITE, key_);
}

// Where page_bytes pages, and one that faults behind them, can go.
std::byte* Arena::place(std::size_t page_bytes, bool small) {
  if (small && small_next_ != nullptr &&
      page_bytes + kPage <= static_cast<std::size_t>(small_end_ - small_next_)) {
    std::byte* at = small_next_;
    small_next_ += page_bytes + kPage;
    return at;
  }
  const std::size_t bytes = round_up(page_bytes + kPage, kBlock);
  if (bytes > static_cast<std::size_t>(base_ + span_ - next_block_)) return nullptr;
  std::byte* at = next_block_;
  next_block_ += bytes;
  blocks_[at] = {at, bytes};
  if (small) {
    small_next_ = at + page_bytes + kPage;
    small_end_ = at + bytes;
  }
  return at;
}

void* Arena::allocate(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  if (bytes > capacity_ - used_) return nullptr;
  Allocation a;
  const bool small = bytes <= kSmall;
  a.bytes = bytes;
  a.page_bytes = round_up(bytes, kPage);
  a.pages = place(a.page_bytes, small);
  if (a.pages == nullptr) return nullptr;
  a.start = small ? a.pages + (a.page_bytes - round_up(bytes, kAlignment)) : a.pages;
  a.serial = ++serial_;
  map(a.pages, a.page_bytes);
  {
    const DeviceRights rights(key_);
    std::memset(a.pages, kPattern, static_cast<std::size_t>(a.start - a.pages));
    std::memset(a.start, kFresh, bytes);
    std::memset(a.start + bytes, kPattern,
                static_cast<std::size_t>(a.pages + a.page_bytes - a.start) - bytes);
  }
  used_ += bytes;
  living_[a.start] = a;
  return a.start;
}

std::optional<Arena::Allocation> Arena::free(void* start) {
  const std::scoped_lock lock(mutex_);
  const auto it = living_.find(static_cast<std::byte*>(start));
  if (it == living_.end()) return {};
  const Allocation a = it->second;
  check(a, "found when it was freed");
  // Back to address space that faults; the file gives its pages back.
  ::mmap(a.pages, a.page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
         -1, 0);
  ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(offset(a.pages)), static_cast<off_t>(a.page_bytes));
  used_ -= a.bytes;
  living_.erase(it);
  dead_[a.start] = a;
  if (dead_.size() > kDeadKept) dead_.erase(dead_.begin());
  return a;
}

std::optional<Arena::Allocation> Arena::find(const void* address) const {
  const std::scoped_lock lock(mutex_);
  const auto it = at_or_before(living_, address);
  if (it == living_.end()) return {};
  const Allocation& a = it->second;
  if (static_cast<const std::byte*>(address) >= a.start + a.bytes) return {};
  return a;
}

std::optional<Arena::Block> Arena::block_of(const void* address) const {
  const std::scoped_lock lock(mutex_);
  const auto it = at_or_before(blocks_, address);
  if (it == blocks_.end()) return {};
  return it->second;
}

bool Arena::block_lives(std::size_t offset) const {
  if (offset >= span_) return false;
  const std::scoped_lock lock(mutex_);
  const auto block = blocks_.find(base_ + offset);
  if (block == blocks_.end()) return false;
  const auto first = living_.lower_bound(block->first);
  return first != living_.end() && first->first < block->first + block->second.bytes;
}

std::size_t Arena::used() const {
  const std::scoped_lock lock(mutex_);
  return used_;
}

void Arena::check(const Allocation& a, const std::string& after) const {
  const DeviceRights rights(key_);
  const auto whole = [&](const std::byte* from, const std::byte* to) -> const std::byte* {
    for (; from < to; ++from)
      if (*from != std::byte{kPattern}) return from;
    return nullptr;
  };
  const std::byte* bad = whole(a.start + a.bytes, a.pages + a.page_bytes);
  if (bad != nullptr)
    fatal("out of bounds: something was written " + std::to_string(bad - (a.start + a.bytes) + 1) +
          " bytes past the end of device " + std::to_string(device_) + "'s memory #" +
          std::to_string(a.serial) + " (" + std::to_string(a.bytes) + " bytes), " + after);
  bad = whole(a.pages, a.start);
  if (bad != nullptr)
    fatal("out of bounds: something was written " + std::to_string(a.start - bad) +
          " bytes before device " + std::to_string(device_) + "'s memory #" +
          std::to_string(a.serial) + " (" + std::to_string(a.bytes) + " bytes), " + after);
}

void Arena::check_patterns(const std::string& after) const {
  const std::scoped_lock lock(mutex_);
  for (const auto& [start, a] : living_) check(a, after);
}

std::string Arena::describe(const void* address) const {
  const auto* p = static_cast<const std::byte*>(address);
  const std::scoped_lock lock(mutex_);
  const auto name = [&](const Allocation& a) {
    return "device " + std::to_string(device_) + "'s memory #" + std::to_string(a.serial) + " (" +
           std::to_string(a.bytes) + " bytes)";
  };
  const auto alive = at_or_before(living_, p);
  const auto dead = at_or_before(dead_, p);
  const auto holds = [&](const auto& it, const auto& map) {
    return it != map.end() && p < it->second.pages + it->second.page_bytes + kPage;
  };
  if (holds(alive, living_)) {
    const Allocation& a = alive->second;
    if (p < a.start + a.bytes) return name(a) + " + " + std::to_string(p - a.start);
    return std::to_string(p - (a.start + a.bytes)) + " bytes past the end of " + name(a);
  }
  if (holds(dead, dead_)) return name(dead->second) + ", which has been freed";
  const auto next = living_.upper_bound(p);
  if (next != living_.end() && next->second.start - p < static_cast<std::ptrdiff_t>(kBlock))
    return std::to_string(next->second.start - p) + " bytes before " + name(next->second);
  return "no memory that device " + std::to_string(device_) + " has given out";
}

}  // namespace vgpu
