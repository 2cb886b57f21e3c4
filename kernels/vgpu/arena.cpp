#include "kernels/vgpu/arena.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/rights.hpp"
#include "kernels/vgpu/settings.hpp"

namespace vgpu {

namespace {

constexpr std::size_t kBlock = 2 << 20;
constexpr std::size_t kSmall = 1 << 20;  // allocations up to this size share blocks
constexpr std::size_t kAlignment = 256;
constexpr unsigned char kGuardPattern = 0xb7;
constexpr int kFresh = 0xff;
constexpr std::size_t kQuick = 32;  // allocations: checking all of them takes about 2 us

std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

template <class Map>
auto at_or_before(const Map& map, const void* address) {
  auto it = map.upper_bound(static_cast<const std::byte*>(address));
  return it == map.begin() ? map.end() : std::prev(it);
}

// Returns the allocation whose pages, or whose guard page after them, contain the address, or null.
const Arena::Allocation* near(const std::map<const std::byte*, Arena::Allocation>& map,
                              const std::byte* p) {
  const auto next = map.upper_bound(p);
  if (next != map.end() && p >= next->second.pages) return &next->second;
  if (next == map.begin()) return nullptr;
  const Arena::Allocation& a = std::prev(next)->second;
  return p < a.pages + a.page_bytes + guard_page() ? &a : nullptr;
}
const Arena::Allocation* near(const std::deque<Arena::Allocation>& list, const std::byte* p) {
  const auto found = std::ranges::find_if(list, [p](const Arena::Allocation& a) {
    return p >= a.pages && p < a.pages + a.page_bytes + guard_page();
  });
  return found == list.end() ? nullptr : &*found;
}

}  // namespace

Arena::Arena(int device, std::byte* base, std::size_t span, std::size_t capacity, int key)
    : device_(device), base_(base), span_(span), capacity_(capacity), key_(key), next_block_(base) {
  file_ = ::memfd_create("vgpu", MFD_CLOEXEC);
  if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(span)) != 0)
    fatal("cannot create an anonymous file for the memory of device " + std::to_string(device) +
          ": " + std::strerror(errno) + "; see ulimit -n and ulimit -f");
}

void Arena::map(std::byte* at, std::size_t bytes) {
  void* got = ::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_,
                     static_cast<off_t>(offset(at)));
  if (got == MAP_FAILED)
    fatal("cannot map " + std::to_string(bytes) +
          " bytes of device memory: too many allocations, or no memory left on this machine");
  give_key(at, bytes, key_);
}

// Uses fresh addresses or, once these run out, the first gap between blocks with live allocations.
std::byte* Arena::place_block(std::size_t bytes) {
  if (bytes <= static_cast<std::size_t>(base_ + span_ - next_block_)) {
    next_block_ += bytes;
    return next_block_ - bytes;
  }
  std::byte* at = base_;
  for (const auto& [start, a] : living_) {
    const Block& block = at_or_before(blocks_, start)->second;
    if (block.base >= at + bytes) break;
    at = block.base + block.bytes;
  }
  if (bytes > static_cast<std::size_t>(base_ + span_ - at)) return nullptr;
  std::erase_if(blocks_, [&](const auto& b) { return b.first >= at && b.first < at + bytes; });
  std::erase_if(dead_, [&](const auto& d) { return d.start >= at && d.start < at + bytes; });
  if (small_end_ > at && small_end_ <= at + bytes) small_next_ = nullptr;  // nothing lives there
  return at;
}

// Finds space for page_bytes of pages followed by a page that faults.
std::byte* Arena::place(std::size_t page_bytes, bool small) {
  if (small && small_next_ != nullptr &&
      page_bytes + guard_page() <= static_cast<std::size_t>(small_end_ - small_next_)) {
    std::byte* at = small_next_;
    small_next_ += page_bytes + guard_page();
    return at;
  }
  // The first page is unused, so that a program that takes the block's base for its array faults.
  const std::size_t skip = small ? guard_page() : 0;
  const std::size_t bytes = round_up(skip + page_bytes + guard_page(), kBlock);
  std::byte* at = place_block(bytes);
  if (at == nullptr) return nullptr;
  blocks_[at] = {at, bytes, small};
  if (small) {
    small_next_ = at + skip + page_bytes + guard_page();
    small_end_ = at + bytes;
  }
  return at + skip;
}

void* Arena::allocate(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  if (bytes > capacity_ - used_) return nullptr;
  Allocation a;
  const bool small = bytes <= kSmall;
  a.bytes = bytes;
  a.page_bytes = round_up(bytes, guard_page());
  a.pages = place(a.page_bytes, small);
  if (a.pages == nullptr) return nullptr;
  a.start = small ? a.pages + (a.page_bytes - round_up(bytes, kAlignment)) : a.pages;
  a.serial = ++serial_;
  map(a.pages, a.page_bytes);
  {
    const DeviceRights rights(key_);
    std::memset(a.pages, kGuardPattern, static_cast<std::size_t>(a.start - a.pages));
    std::memset(a.start, kFresh, bytes);
    std::memset(a.start + bytes, kGuardPattern,
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
  check(a, [] { return "when it was freed"; });
  take_key(a.pages);
  // The addresses now fault, and the file returns its pages to the system.
  if (::mmap(a.pages, a.page_bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
    fatal("cannot unmap " + std::to_string(a.page_bytes) + " bytes of freed device memory");
  ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(offset(a.pages)), static_cast<off_t>(a.page_bytes));
  used_ -= a.bytes;
  living_.erase(it);
  dead_.push_back(a);
  if (dead_.size() > kDeadKept) dead_.pop_front();
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

std::string Arena::name_of(const Allocation& a) const {
  return "device " + std::to_string(device_) + "'s memory #" + std::to_string(a.serial) + " (" +
         std::to_string(a.bytes) + " bytes)";
}

void Arena::check(const Allocation& a, const std::function<std::string()>& when) const {
  const DeviceRights rights(key_);
  static const std::vector<std::byte> pattern(guard_page(), std::byte{kGuardPattern});
  const auto look = [&](const std::byte* from, const std::byte* to) {
    const auto bytes = static_cast<std::size_t>(to - from);
    if (std::memcmp(from, pattern.data(), bytes) == 0) return;
    const std::byte* bad = std::mismatch(from, to, pattern.begin()).first;
    const std::string memory = name_of(a);
    fatal("out of bounds: something was written " +
          (bad < a.start ? std::to_string(a.start - bad) + " bytes before " + memory
                         : "to " + memory + " + " + std::to_string(bad - a.start)) +
          "\n  found " + when());
  };
  look(a.start + a.bytes, a.pages + a.page_bytes);
  look(a.pages, a.start);
}

void Arena::check_patterns(const std::function<std::string()>& when) const {
  const std::scoped_lock lock(mutex_);
  for (const auto& [start, a] : living_) check(a, when);
}

void Arena::check_patterns_quickly(const std::function<std::string()>& when) const {
  const std::scoped_lock lock(mutex_);
  if (living_.size() > kQuick) return;
  for (const auto& [start, a] : living_) check(a, when);
}

bool Arena::was_freed(const void* address) const {
  const auto* p = static_cast<const std::byte*>(address);
  const std::scoped_lock lock(mutex_);
  return near(living_, p) == nullptr && near(dead_, p) != nullptr;
}

std::string Arena::describe(const void* address) const {
  const auto* p = static_cast<const std::byte*>(address);
  const std::scoped_lock lock(mutex_);
  if (const Allocation* a = near(living_, p)) {
    if (p < a->start) return std::to_string(a->start - p) + " bytes before " + name_of(*a);
    if (p < a->start + a->bytes) return name_of(*a) + " + " + std::to_string(p - a->start);
    return std::to_string(p - (a->start + a->bytes)) + " bytes past the end of " + name_of(*a);
  }
  if (const Allocation* a = near(dead_, p))
    return name_of(*a) + " + " + std::to_string(p - a->start) + ", which has been freed";
  const auto next = living_.upper_bound(p);
  if (next != living_.end() && next->second.start - p < static_cast<std::ptrdiff_t>(kBlock))
    return std::to_string(next->second.start - p) + " bytes before " + name_of(next->second);
  return "unallocated memory of device " + std::to_string(device_);
}

}  // namespace vgpu
