// The free parts of a stretch of memory: first fit, neighbours merged. Few and large allocations
// are the rule (buckets), so a map is enough.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>

namespace ringsmith::comm {

class FreeRanges {
 public:
  FreeRanges(std::size_t begin, std::size_t size) { free_[begin] = size; }

  // Where `size` bytes would fit; they stay free until take().
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

}  // namespace ringsmith::comm
