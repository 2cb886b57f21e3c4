// Lab 01, part 1: sizes and strides, without any numbers.
//
//     sizes [2, 3]   row by row: strides [3, 1]     positions 0 1 2 / 3 4 5
//     transposed: sizes [3, 2], strides [1, 3]      positions 0 3 / 1 4 / 2 5
//     the transposed one, flattened to [6]:         0 3 1 4 2 5 - no stride gives this order
//
// Nothing here loops over elements: there may be 2^40 of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "labs/kit/todo.hpp"

namespace lab01 {

using Shape = std::vector<std::int64_t>;  // sizes, strides or an index; empty for a single number

// Given. Refuses an impossible request. Call refuse() before anything has changed.
[[noreturn]] inline void refuse(const std::string& why) { throw std::invalid_argument(why); }

inline std::string text(const Shape& shape) {  // "[2, 3]"
  std::string all = "[";
  for (const std::int64_t n : shape) all += (all.size() > 1 ? ", " : "") + std::to_string(n);
  return all + "]";
}

// Task 1. Returns the number of elements with these sizes: the product, or 1 if there are no sizes.
// Refuses negative sizes, and products beyond the largest std::int64_t.
inline std::int64_t numel_of(const Shape& sizes) {
#ifdef SOLUTION
  std::int64_t count = 1;
  for (const std::int64_t n : sizes) {
    if (n < 0) refuse("sizes " + text(sizes) + ": a size is negative");
    if (n > 0 && count > std::numeric_limits<std::int64_t>::max() / n)
      refuse("sizes " + text(sizes) + ": more elements than an int64 can count");
    count *= std::max<std::int64_t>(n, 1);
  }
  return std::find(sizes.begin(), sizes.end(), 0) == sizes.end() ? count : 0;
#else
  (void)sizes;
  kit::todo("task 1, numel_of");
#endif
}

// Task 1. Returns the strides of elements that are stored row by row without gaps: the last is 1,
// and each other stride is the next stride times the next size. A size of 0 counts as 1.
inline Shape row_major(const Shape& sizes) {
#ifdef SOLUTION
  Shape strides(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t d = sizes.size(); d-- > 0; stride *= std::max<std::int64_t>(sizes[d], 1))
    strides[d] = stride;
  return strides;
#else
  (void)sizes;
  kit::todo("task 1, row_major");
#endif
}

// Task 4. Resolves the arguments of view and reshape: sizes for `numel` elements. One size may be
// -1, for the remaining size. Returns the sizes with that number instead of -1. Refuses sizes that
// do not fit. Refuses a -1 that no whole number can replace, and a -1 that any number can replace
// ([0, -1] for 0 elements).
inline Shape resolve(const Shape& sizes, std::int64_t numel) {
#ifdef SOLUTION
  Shape resolved = sizes;
  const auto unknown = std::find(resolved.begin(), resolved.end(), -1);
  if (unknown != resolved.end()) {
    *unknown = 1;
    const std::int64_t known = numel_of(resolved);
    if (known == 0) refuse("-1 in " + text(sizes) + " could be any size");
    *unknown = numel / known;
  }
  if (numel_of(resolved) != numel)
    refuse(std::to_string(numel) + " elements do not fit into " + text(sizes));
  return resolved;
#else
  (void)sizes, (void)numel;
  kit::todo("task 4, resolve");
#endif
}

// Task 4. Returns the strides with which the sizes `wanted` show the elements of (sizes, strides)
// in the same order, or std::nullopt if no strides do. Both have the same number of elements. The
// stride of a size of 1 is never used. If there are no elements, any strides are right.
inline std::optional<Shape> strides_for(const Shape& sizes, const Shape& strides,
                                        const Shape& wanted) {
#ifdef SOLUTION
  // Traverses both lists of sizes from the back. `run` elements, `step` apart, have been taken from
  // old dimensions but not yet given to new ones. A run grows while the next dimension continues
  // it.
  Shape found = row_major(wanted);
  if (numel_of(wanted) == 0) return found;
  std::int64_t run = 1, step = 1;
  std::size_t old = sizes.size();
  for (std::size_t d = wanted.size(); d-- > 0; run /= wanted[d], step *= wanted[d]) {
    while (run % wanted[d] != 0) {
      if (sizes[--old] == 1) continue;
      if (run > 1 && strides[old] != run * step) return std::nullopt;
      if (run == 1) step = strides[old];
      run *= sizes[old];
    }
    found[d] = step;
  }
  return found;
#else
  (void)sizes, (void)strides, (void)wanted;
  kit::todo("task 4, strides_for");
#endif
}

}  // namespace lab01
