#include "runtime/comm/transport/shm/arena.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "runtime/base/error.hpp"
#include "runtime/comm/transport/shm/segment.hpp"

namespace ringsmith::comm {

namespace {
constexpr std::size_t kAlign = 64;                       // bytes
constexpr std::size_t kReturned = std::size_t{1} << 20;  // freed blocks from here up leave memory
}  // namespace

class Arena::Block : public CommMemory {
 public:
  Block(std::shared_ptr<Arena> arena, std::size_t offset, Bytes size, std::size_t reserved)
      : arena_(std::move(arena)), offset_(offset), size_(size), reserved_(reserved) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() override { arena_->free(offset_, reserved_); }
  [[nodiscard]] std::byte* data() const override { return arena_->segment_->data() + offset_; }
  [[nodiscard]] Bytes size() const override { return size_; }

 private:
  std::shared_ptr<Arena> arena_;
  std::size_t offset_;
  Bytes size_;
  std::size_t reserved_;
};

Arena::Arena(std::shared_ptr<Segment> segment, Bytes begin)
    : segment_(std::move(segment)),
      begin_(begin.value),
      free_(begin.value, segment_->size().value - begin.value),
      used_before_(begin.value) {}

std::shared_ptr<CommMemory> Arena::allocate(Bytes size) {
  const std::size_t reserved = std::max(kAlign, (size.value + kAlign - 1) / kAlign * kAlign);
  std::size_t offset = 0;
  bool dirty = false;
  {
    const std::lock_guard lock(mutex_);
    const auto fit = free_.find(reserved);
    if (!fit || reserved < size.value)
      throw CommError("communication memory: " + std::to_string(size.value) +
                      " bytes do not fit into what is left of " +
                      std::to_string((segment_->size().value - begin_) >> 20) + " MiB" +
                      address_limit_advice());
    offset = *fit;
    segment_->commit(Bytes(offset), Bytes(reserved));  // throws before anything is taken
    free_.take(offset, reserved);
    dirty = offset < used_before_;
    used_before_ = std::max(used_before_, offset + reserved);
  }
  if (dirty) std::memset(segment_->data() + offset, 0, reserved);
  return std::make_shared<Block>(shared_from_this(), offset, size, reserved);
}

void Arena::free(std::size_t offset, std::size_t size) {
  const std::lock_guard lock(mutex_);
  if (size >= kReturned) segment_->release(Bytes(offset), Bytes(size));
  free_.give(offset, size);
}

std::optional<Bytes> Arena::offset_of(const std::byte* data, Bytes size) const {
  const std::byte* const base = segment_->data();
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto first = reinterpret_cast<std::uintptr_t>(base) + begin_;
  const auto last = reinterpret_cast<std::uintptr_t>(base) + segment_->size().value;
  if (address < first || address > last || size.value > last - address) return std::nullopt;
  return Bytes(address - reinterpret_cast<std::uintptr_t>(base));
}

}  // namespace ringsmith::comm
