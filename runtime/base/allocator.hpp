// Size classes and statistics, shared by the caching allocators of host, pinned and device memory.
//
// Requests of up to 512 bytes are rounded up to a multiple of 64 bytes, larger ones to one of eight
// sizes per octave, so that a freed block can serve the next request of a similar size. Rounding
// wastes less than 1/8 of a large request.
//
//   64 128 ... 512 576 640 704 ... 1024 1152 1280 ...
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "runtime/base/units.hpp"

namespace ringsmith {

struct SizeClass {
  static constexpr std::size_t kSmallest = 64;  // bytes; also the alignment of every class
  static constexpr std::size_t kPerOctave = 8;
  static constexpr std::size_t kCount = 8 + 40 * kPerOctave;  // up to 2^49 bytes

  std::size_t size;   // bytes
  std::size_t index;  // kCount and above: larger than any allocator provides
};

constexpr SizeClass size_class_of(std::size_t size) {
  if (size <= 512) {
    const std::size_t steps =
        std::max<std::size_t>(1, (size + SizeClass::kSmallest - 1) / SizeClass::kSmallest);
    return {steps * SizeClass::kSmallest, steps - 1};
  }
  const auto exponent = static_cast<std::size_t>(std::bit_width(size - 1)) - 1;  // 2^e <= size-1
  const std::size_t step = std::size_t{1} << (exponent - 3);
  const std::size_t rounded = (size + step - 1) / step * step;
  // 9/8..16/8 of 2^e are classes 0..7 of the octave.
  return {rounded, (exponent - 9) * SizeClass::kPerOctave + 8 + (rounded >> (exponent - 3)) - 9};
}

struct AllocatorStats {
  Bytes current;   // requested and not yet freed
  Bytes peak;      // maximum of current since reset_peak()
  Bytes reserved;  // obtained from the system or the driver, including rounding and the cache
  std::uint64_t allocations = 0;
  std::uint64_t system_allocations = 0;  // requests that the cache could not serve
};

}  // namespace ringsmith
