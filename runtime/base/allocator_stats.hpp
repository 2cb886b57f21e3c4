// What an allocator has given out. The same for host, pinned and device memory.
#pragma once

#include <cstdint>

#include "runtime/base/units.hpp"

namespace ringsmith {

struct AllocatorStats {
  Bytes current;   // asked for and not yet freed
  Bytes peak;      // largest value of current since reset_peak()
  Bytes reserved;  // taken from the system or the driver: current, rounding and cache
  std::uint64_t allocations = 0;
  std::uint64_t system_allocations = 0;  // those that the cache could not serve
};

}  // namespace ringsmith
