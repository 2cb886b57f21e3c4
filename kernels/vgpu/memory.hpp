// Pinned host memory: allocated by cudaHostAlloc, or registered by cudaHostRegister. A pinned
// pointer is the same on host and devices.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>

namespace vgpu {

class PinnedMemory {
 public:
  struct Range {
    const std::byte* start = nullptr;
    std::size_t bytes = 0;
    int device = 0;          // current device when the memory was pinned
    bool allocated = false;  // by cudaHostAlloc
    bool managed = false;    // by cudaMallocManaged, or a symbol: also counts as device memory
  };
  static PinnedMemory& get();
  // Returns false if `range` overlaps a pinned range.
  bool add(const Range& range);
  // Removes and returns the range with this start and this value of `allocated`, if there is one.
  std::optional<Range> remove(const void* start, bool allocated);
  // Marks the range that starts here as managed.
  void manage(const void* start);
  [[nodiscard]] std::optional<Range> find(const void* address) const;
  // True if memory from cudaHostAlloc ends less than two pages before this (unpinned) address.
  [[nodiscard]] bool ends_before(const void* address) const;

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, Range> ranges_;
};

}  // namespace vgpu
