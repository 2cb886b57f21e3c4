// The allocator of one rank's communication memory on the host: its segment, first fit.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "runtime/base/units.hpp"
#include "runtime/comm/types/buffer.hpp"
#include "runtime/comm/transport/free_ranges.hpp"
#include "runtime/comm/transport/shm/segment.hpp"

namespace ringsmith::comm {

class Arena : public std::enable_shared_from_this<Arena> {
 public:
  // Manages the segment from offset `begin` to its end.
  Arena(std::shared_ptr<Segment> segment, Bytes begin);
  // Zero-filled, 64-byte aligned. CommError when address space or memory is short.
  [[nodiscard]] std::shared_ptr<CommMemory> allocate(Bytes size);
  // The offset of this memory in the segment, if all of it is managed here.
  [[nodiscard]] std::optional<Bytes> offset_of(const std::byte* data, Bytes size) const;

 private:
  class Block;
  void free(std::size_t offset, std::size_t size);

  std::shared_ptr<Segment> segment_;
  std::size_t begin_;
  std::mutex mutex_;
  FreeRanges free_;
  std::size_t used_before_;  // below this offset memory may be dirty
};

}  // namespace ringsmith::comm
