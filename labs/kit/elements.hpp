// Elements for a collective that is a template: kit::Counted, and two types that show what the code
// assumes of T: doubles, among them infinities and -0, and bytes, which are smaller than a word.
// labs/course/expect.py knows the formulas.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "labs/kit/counted.hpp"

namespace kit {

// Returns a rank's element i.
template <class T>
[[nodiscard]] T element(int rank, std::size_t i) {
  if constexpr (std::is_same_v<T, Counted>) {
    return counted(rank, i);
  } else if constexpr (std::is_same_v<T, double>) {
    if (i % 11 == 3 && rank == 0) return -std::numeric_limits<double>::infinity();
    if (i % 11 == 5) return -0.0;
    if (i % 11 == 7) return rank % 2 == 0 ? 1e300 : -1e300;  // cancels on an even number of ranks
    return double(rank + 1) * double(std::int64_t{1} << 40) + double(i);
  } else {
    return T((std::size_t(rank) * 9 + i) % 32);
  }
}

// Returns what the judge sees of a buffer: runs_of(), the bits of doubles, or numbers.
template <class T>
[[nodiscard]] std::vector<std::int64_t> shown(std::span<const T> buffer) {
  if constexpr (std::is_same_v<T, Counted>) {
    return runs_of(buffer);
  } else {
    std::vector<std::int64_t> all;
    for (const T one : buffer) {
      if constexpr (std::is_same_v<T, double>)
        all.push_back(std::bit_cast<std::int64_t>(one));
      else
        all.push_back(std::int64_t(one));
    }
    return all;
  }
}

// Calls call(T{}) with the type of a request's "type".
template <class Call>
auto with_type(std::int64_t type, Call call) {
  return type == 1 ? call(double{}) : type == 2 ? call(std::uint8_t{}) : call(Counted{});
}

}  // namespace kit
