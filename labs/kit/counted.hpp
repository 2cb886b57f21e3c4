// An element that records its contributions: how often each rank has been added, and the buffer
// position that they come from. A sum of numbers can be right by accident; a sum of these elements
// reports "element 517: rank 2 counted twice, rank 4 missing".
//
// In a template it behaves like a number: it is zero when value-initialised, and += adds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kit {

class Counted {
 public:
  Counted& operator+=(const Counted& other) {
    for (int r = 0; r < max_world; ++r) {
      const int sum = times_[r] + other.times_[r];
      times_[r] = std::uint8_t(sum < 255 ? sum : 255);
    }
    if (home_ == blank)
      home_ = other.home_;
    else if (other.home_ != blank && other.home_ != home_)
      home_ = mixed;
    return *this;
  }
  friend Counted operator+(Counted left, const Counted& right) { return left += right; }
  friend bool operator==(const Counted&, const Counted&) = default;

 private:
  friend Counted counted(int rank, std::size_t index);
  friend std::vector<std::int64_t> runs_of(std::span<const Counted> buffer);
  static constexpr int max_world = 8;
  static constexpr std::uint32_t blank = 0xFFFFFFFF;  // home of zero: no position
  static constexpr std::uint32_t mixed = 0xFFFFFFFE;  // home of a sum over different positions

  std::uint8_t times_[max_world] = {};  // how often each rank is included, up to 255
  std::uint32_t home_ = blank;
};

// For drivers: returns the contribution of a rank at a position.
inline Counted counted(int rank, std::size_t index) {
  Counted one;
  one.times_[rank] = 1;
  one.home_ = std::uint32_t(index);
  return one;
}

// Returns a compact form of a buffer for the judge: runs {first, length, shift, times[8]} of
// elements with the same counts and shift. shift: home - index, 1 << 40 for blank, 2 << 40 for
// mixed.
inline std::vector<std::int64_t> runs_of(std::span<const Counted> buffer) {
  constexpr std::size_t width = 3 + Counted::max_world;
  const auto shift_of = [&](std::size_t i) -> std::int64_t {
    if (buffer[i].home_ == Counted::blank) return std::int64_t{1} << 40;
    if (buffer[i].home_ == Counted::mixed) return std::int64_t{2} << 40;
    return std::int64_t(buffer[i].home_) - std::int64_t(i);
  };
  std::vector<std::int64_t> runs;
  for (std::size_t i = 0; i < buffer.size(); ++i) {
    bool same = i > 0 && runs[runs.size() - width + 2] == shift_of(i);
    for (int r = 0; same && r < Counted::max_world; ++r)
      same = buffer[i].times_[r] == buffer[i - 1].times_[r];
    if (same) {
      ++runs[runs.size() - width + 1];
      continue;
    }
    if (runs.size() >= 200 * width) break;  // wrong everywhere, so these runs are enough
    runs.insert(runs.end(), {std::int64_t(i), 1, shift_of(i)});
    runs.insert(runs.end(), buffer[i].times_, buffer[i].times_ + Counted::max_world);
  }
  return runs;
}

}  // namespace kit
