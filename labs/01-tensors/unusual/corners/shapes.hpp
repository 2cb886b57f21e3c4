// Unusual and correct: 128 bits for products, and no walk over dimensions to find strides. The runs
// of row-by-row elements end at certain counts from the back ("corners"). Where the old sizes have
// a corner with a gap, the new sizes must have a corner as well. The strides are then read off at
// the corners.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace lab01 {

using Shape = std::vector<std::int64_t>;

[[noreturn]] inline void refuse(const std::string& why) { throw std::invalid_argument(why); }

inline std::string text(const Shape& shape) {
  std::string all;
  for (const std::int64_t n : shape) all += (all.empty() ? "[" : ", ") + std::to_string(n);
  return all.empty() ? "[]" : all + "]";
}

inline std::int64_t numel_of(const Shape& sizes) {
  __extension__ using Wide = unsigned __int128;
  Wide count = 1;
  bool none = false;
  for (const std::int64_t n : sizes) {
    if (n < 0) refuse(text(sizes) + ": negative");
    none = none || n == 0;
    count *= n == 0 ? Wide(1) : Wide(n);
    if (count > Wide(INT64_MAX)) refuse(text(sizes) + ": too many");
  }
  return none ? 0 : std::int64_t(count);
}

// Returns the number of elements behind each dimension: 12, 4 and 1 for [2, 3, 4].
inline Shape row_major(const Shape& sizes) {
  Shape behind(sizes.size(), 1);
  for (std::size_t d = 0; d < sizes.size(); ++d)
    for (std::size_t e = d + 1; e < sizes.size(); ++e) behind[d] *= sizes[e] == 0 ? 1 : sizes[e];
  return behind;
}

// Returns the distance of element number k of (sizes, strides) from the first element.
inline std::int64_t distance(std::int64_t k, const Shape& sizes, const Shape& strides) {
  std::int64_t far = 0;
  for (std::size_t d = sizes.size(); d-- > 0; k /= sizes[d]) far += k % sizes[d] * strides[d];
  return far;
}

inline Shape resolve(const Shape& sizes, std::int64_t numel) {
  std::vector<std::size_t> open;
  Shape known;
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] == -1)
      open.push_back(d);
    else
      known.push_back(sizes[d]);
  if (open.size() > 1) refuse(text(sizes) + ": one -1 at most");
  Shape all = sizes;
  const std::int64_t others = numel_of(known);
  if (!open.empty()) {
    if (others == 0 || numel % others != 0) refuse(text(sizes) + ": no size for -1");
    all[open[0]] = numel / others;
  } else if (others != numel) {
    refuse(text(sizes) + ": is not for " + std::to_string(numel));
  }
  return all;
}

inline std::optional<Shape> strides_for(const Shape& sizes, const Shape& strides,
                                        const Shape& wanted) {
  Shape found = row_major(wanted);
  const std::int64_t numel = numel_of(wanted);
  if (numel == 0) return found;
  const std::set<std::int64_t> corners(found.begin(), found.end());
  const Shape behind = row_major(sizes);
  for (const std::int64_t corner : behind) {
    if (corner == 1 || corner == numel || corners.contains(corner)) continue;
    // Compares the step over the corner with the step of the run before it.
    std::int64_t run = 0, step = 0;
    for (std::size_t d = 0; d < sizes.size(); ++d)
      if (behind[d] < corner && sizes[d] > 1 && behind[d] * sizes[d] == corner)
        run = sizes[d], step = strides[d];
    if (distance(corner, sizes, strides) != run * step) return std::nullopt;
  }
  for (std::size_t d = 0; d < wanted.size(); ++d)
    found[d] = wanted[d] > 1 ? distance(found[d], sizes, strides) : 7;  // 7: any stride will do
  return found;
}

}  // namespace lab01
