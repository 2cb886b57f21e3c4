// Sets of time as sorted lists of disjoint half-open intervals [begin, end).
//
//   a       |-----|     |----|
//   b          |----------|
//   a \ b   |--|           |-|
#pragma once

#include <cstdint>
#include <vector>

namespace ringsmith {

struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const Interval&) const = default;
};

// Sorted, disjoint, not touching, none empty.
using Intervals = std::vector<Interval>;

// Any intervals, in any order, overlapping or empty; an end before its begin counts as empty.
[[nodiscard]] Intervals unite(std::vector<Interval> intervals);
[[nodiscard]] Intervals subtract(const Intervals& a, const Intervals& b);
[[nodiscard]] Intervals clip(const Intervals& a, Interval window);
[[nodiscard]] std::int64_t length(const Intervals& a);

}  // namespace ringsmith
