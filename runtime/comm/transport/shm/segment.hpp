// Shared memory without a name: an anonymous file (memfd) that exists while any process has it open
// or mapped. Nothing appears in /dev/shm or /tmp, so kill -9 leaves nothing behind, and Docker's
// limit of 64 MB on /dev/shm does not apply.
//
// A segment is sparse: its size is reserved address space, and memory is used only for pages that
// have been committed or touched. A process maps a segment only once: opening it again, or opening
// one that the process created, gives the same pointer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>

#include "runtime/base/process.hpp"
#include "runtime/base/units.hpp"
#include "runtime/comm/types/buffer.hpp"

namespace ringsmith::comm {

class Segment {
 public:
  using Identity = std::pair<dev_t, ino_t>;  // of the anonymous file: its device and inode

  static std::shared_ptr<Segment> create(Bytes size);
  static std::shared_ptr<Segment> open(Descriptor file);
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] Bytes size() const { return size_; }
  [[nodiscard]] const Descriptor& file() const { return file_; }

  // Allocates the memory of this range. Throws CommError with the size if there is not enough.
  // Without this call, touching the range when memory is short would raise SIGBUS.
  void commit(Bytes offset, Bytes size);
  // Returns the memory of the whole pages in this range to the system. From then on, these pages
  // read as zero.
  void release(Bytes offset, Bytes size);

 private:
  Segment(Descriptor file, const Identity& identity, std::byte* data, Bytes size);
  Descriptor file_;
  Identity identity_;
  std::byte* data_;
  Bytes size_;
};

// Returns how much address space each of `ranks` ranks may reserve for communication memory, in
// addition to the `fixed` bytes of its segment. Throws ResourceError with limit, need and remedy if
// a limit leaves too little.
[[nodiscard]] Bytes communication_space(Bytes fixed, int ranks);

// The free parts of a memory range. A map is enough, because allocations are few and large
// (buckets).
class FreeRanges {
 public:
  FreeRanges(std::size_t begin, std::size_t size) { free_[begin] = size; }

  // Returns the offset where `size` bytes fit; they stay free until take().
  [[nodiscard]] std::optional<std::size_t> find(std::size_t size) const {
    const auto fit = std::find_if(free_.begin(), free_.end(),
                                  [&](const auto& range) { return range.second >= size; });
    if (fit == free_.end()) return std::nullopt;
    return fit->first;
  }

  void take(std::size_t offset, std::size_t size) {
    const auto range = free_.find(offset);
    const std::size_t rest = range->second - size;
    free_.erase(range);
    if (rest > 0) free_[offset + size] = rest;
  }

  void give(std::size_t offset, std::size_t size) {
    auto at = free_.emplace(offset, size).first;
    const auto next = std::next(at);
    if (next != free_.end() && at->first + at->second == next->first) {
      at->second += next->second;
      free_.erase(next);
    }
    if (at == free_.begin()) return;
    const auto before = std::prev(at);
    if (before->first + before->second == at->first) {
      before->second += at->second;
      free_.erase(at);
    }
  }

 private:
  std::map<std::size_t, std::size_t> free_;  // offset -> size, bytes
};

// Allocates one rank's communication memory on the host: first fit in its segment.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  // Manages the segment from offset `begin` to its end.
  Arena(std::shared_ptr<Segment> segment, Bytes begin);
  // Returns zero-filled, 64-byte aligned memory. Throws ResourceError if the reserved address space
  // is used up, CommError if memory runs out.
  [[nodiscard]] std::shared_ptr<CommMemory> allocate(Bytes size);
  // Returns the offset of this memory in the segment, or nullopt if it is not part of the arena.
  [[nodiscard]] std::optional<Bytes> offset_of(const std::byte* data, Bytes size) const {
    const auto base = reinterpret_cast<std::uintptr_t>(segment_->data());
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    const std::uintptr_t first = base + begin_, last = base + segment_->size().value;
    if (address < first || address > last || size.value > last - address) return std::nullopt;
    return Bytes(address - base);
  }

 private:
  class HostBlock;
  void free(std::size_t offset, std::size_t size);

  std::shared_ptr<Segment> segment_;
  std::size_t begin_;
  std::mutex mutex_;
  FreeRanges free_;
  std::size_t used_before_;  // below this offset memory may be dirty
};

}  // namespace ringsmith::comm
