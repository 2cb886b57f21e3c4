// Pinned host memory: what cudaHostAlloc gave out and what cudaHostRegister was told of. A pinned
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
    int device = 0;          // current when it was pinned
    bool allocated = false;  // by cudaHostAlloc
  };
  static PinnedMemory& get();
  // False if it overlaps a range that is pinned already.
  bool add(const Range& range);
  // The range that starts there, which is forgotten; nothing if there is none of that kind.
  std::optional<Range> remove(const void* start, bool allocated);
  [[nodiscard]] std::optional<Range> find(const void* address) const;
  // Whether memory of cudaHostAlloc ends on the page before this address.
  [[nodiscard]] bool ends_before(const void* address) const;

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, Range> ranges_;
};

}  // namespace vgpu
