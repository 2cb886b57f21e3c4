#include "kernels/dropout.hpp"

#include <algorithm>
#include <cstddef>

#include "kernels/parallel.hpp"

namespace ringsmith::kernels::cpu {

void dropout_mask(std::span<bool> keep, double keep_probability, PhiloxState state) {
  const std::uint64_t below = keep_below(keep_probability);
  const auto blocks = static_cast<std::int64_t>(philox_blocks(keep.size()));
  parallel_for(blocks, 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::size_t first = static_cast<std::size_t>(b) * 4;
      const PhiloxBlock words = philox(state.seed, state.offset + static_cast<std::uint64_t>(b));
      for (std::size_t k = 0; k < std::min<std::size_t>(4, keep.size() - first); ++k)
        keep[first + k] = words[k] < below;
    }
  });
}

}  // namespace ringsmith::kernels::cpu
