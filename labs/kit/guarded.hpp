// A buffer between guard elements, filled with a pattern that is not a valid result, so that writes
// past either end and unwritten elements are detected. An offset of 1 misaligns the buffer for
// vector accesses.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace kit {

template <class T>
class Guarded {
 public:
  explicit Guarded(std::size_t count, std::size_t offset = 0)
      : count_(count), first_(guard + offset), all_(guard + offset + count + guard) {
    // 0xFF in every byte is a NaN for floats, and not a count that a test expects.
    std::memset(static_cast<void*>(all_.data()), 0xFF, all_.size() * sizeof(T));
  }
  [[nodiscard]] std::span<T> span() { return std::span<T>(all_).subspan(first_, count_); }
  // Returns the number of guard elements that have changed.
  [[nodiscard]] std::int64_t broken() const {
    std::int64_t wrong = 0;
    unsigned char pattern[sizeof(T)];
    std::memset(pattern, 0xFF, sizeof(T));
    for (std::size_t i = 0; i < all_.size(); ++i)
      if (i < first_ || i >= first_ + count_)
        wrong += std::memcmp(&all_[i], pattern, sizeof(T)) != 0;
    return wrong;
  }
  [[nodiscard]] bool holds(const std::vector<T>& values) const {
    return count_ == 0 || std::memcmp(&all_[first_], values.data(), count_ * sizeof(T)) == 0;
  }

 private:
  static constexpr std::size_t guard = 64;  // elements on each side
  std::size_t count_;
  std::size_t first_;
  std::vector<T> all_;
};

}  // namespace kit
