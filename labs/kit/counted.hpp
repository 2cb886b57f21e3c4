// An element that records its contributions: how often each rank has been added, and the buffer
// position that they come from. A sum of numbers can be right by accident; a sum of these elements
// reports "element 517: rank 2 counted twice, rank 4 missing".
//
// In a template it behaves like a number: it is zero when value-initialised, and += adds. An
// element is sealed by a key of this run, which no object of a student's program contains
// (counted.cpp). So bytes that were put together, and not copied or added, are reported, too.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kit {

class Counted {
 public:
  Counted();
  Counted& operator+=(const Counted& other);
  friend Counted operator+(Counted left, const Counted& right) { return left += right; }
  friend bool operator==(const Counted&, const Counted&) = default;

 private:
  friend Counted counted(int rank, std::size_t index);
  friend std::vector<std::int64_t> runs_of(std::span<const Counted> buffer);
  static constexpr int max_world = 8;
  static constexpr std::uint32_t blank = 0xFFFFFFFF;  // home of zero: no position
  static constexpr std::uint32_t mixed = 0xFFFFFFFE;  // home of a sum over different positions
  static constexpr std::uint32_t forged =
      0xFFFFFFFD;                            // home of a sum with bytes that are no element
  static constexpr std::uint32_t most = 15;  // times_ counts no further

  [[nodiscard]] std::uint32_t times(int rank) const { return times_ >> 4 * rank & most; }
  [[nodiscard]] std::uint32_t seal() const;
  [[nodiscard]] bool is_genuine() const;

  std::uint32_t times_ = 0;  // four bits per rank: how often it is included
  std::uint32_t home_ = blank;
  std::uint32_t seal_;
};

// For drivers: returns the contribution of a rank at a position.
[[nodiscard]] Counted counted(int rank, std::size_t index);

// Returns a compact form of a buffer for the judge: runs {first, length, shift, times[8]} of
// elements with the same counts and shift. shift: home - index, 1 << 40 for blank, 2 << 40 for
// mixed, 3 << 40 for bytes that are no element. times: 255 if the element was never written.
[[nodiscard]] std::vector<std::int64_t> runs_of(std::span<const Counted> buffer);

}  // namespace kit
