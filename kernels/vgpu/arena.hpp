// The memory of one virtual device: a range of addresses over one anonymous file (memfd), which
// other processes can map.
//
//   | block: 2 MiB                             | block                  | ...
//   | guard [gap|data|gap] guard page ...      | data ..... [gap] guard |
//
// As on a GPU, small allocations share a block of 2 MiB, and an IPC handle names the block, so the
// exporter must also send the offset. Unlike on a GPU, a page that faults follows every allocation.
// Small allocations end less than 256 bytes before it (the alignment of cudaMalloc). Large ones
// start at their block's base. The gaps contain a pattern that is checked. All bits of fresh memory
// are set, which is NaN in every floating-point type. Addresses are reused only when all others
// have been used, so that an access to freed memory faults and is reported as such.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace vgpu {

class Arena {
 public:
  static constexpr std::size_t kDeadKept = 4096;  // freed allocations known to was_freed()

  struct Allocation {
    std::byte* start = nullptr;
    std::size_t bytes = 0;  // as requested
    std::byte* pages = nullptr;
    std::size_t page_bytes = 0;
    std::uint64_t serial = 0;  // from 1, in order of allocation
  };
  struct Block {
    std::byte* base = nullptr;
    std::size_t bytes = 0;
    bool small = false;  // shared by small allocations, none of which begins at the base
  };

  // Uses [base, base + span) of reserved address space. key: the device's memory protection key, or
  // -1.
  Arena(int device, std::byte* base, std::size_t span, std::size_t capacity, int key);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Returns null if the device's memory or its addresses are exhausted.
  void* allocate(std::size_t bytes);
  // Ends the process if bytes next to the allocation were overwritten. Returns nothing if no
  // allocation starts here.
  std::optional<Allocation> free(void* start);

  [[nodiscard]] std::optional<Allocation> find(const void* address) const;
  [[nodiscard]] std::optional<Block> block_of(const void* address) const;
  // True if a block starts at this offset of the file and contains a live allocation.
  [[nodiscard]] bool block_lives(std::size_t offset) const;
  [[nodiscard]] std::string describe(const void* address) const;
  // True if the address is in, or just after, one of the kDeadKept most recently freed allocations.
  [[nodiscard]] bool was_freed(const void* address) const;
  // Ends the process if the patterns around an allocation were overwritten. The message includes
  // the result of `when`, which is called only in that case. The quick check, for the end of each
  // kernel, does nothing if there are many allocations.
  void check_patterns(const std::function<std::string()>& when) const;
  void check_patterns_quickly(const std::function<std::string()>& when) const;

  [[nodiscard]] std::size_t used() const;
  [[nodiscard]] std::size_t capacity() const { return capacity_; }
  [[nodiscard]] int file() const { return file_; }
  [[nodiscard]] std::size_t offset(const void* address) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(address) - base_);
  }

 private:
  std::byte* place_block(std::size_t bytes);
  std::byte* place(std::size_t page_bytes, bool small);
  void map(std::byte* at, std::size_t bytes);
  [[nodiscard]] std::string name_of(const Allocation& a) const;
  void check(const Allocation& a, const std::function<std::string()>& when) const;

  const int device_;
  std::byte* const base_;
  const std::size_t span_, capacity_;
  const int key_;
  int file_ = -1;
  mutable std::mutex mutex_;
  std::byte* next_block_;
  std::byte* small_next_ = nullptr;  // in the block that small allocations share
  std::byte* small_end_ = nullptr;
  std::size_t used_ = 0;
  std::uint64_t serial_ = 0;
  std::map<const std::byte*, Allocation> living_;
  std::deque<Allocation> dead_;  // for reports only; in the order in which they were freed
  std::map<const std::byte*, Block> blocks_;
};

}  // namespace vgpu
