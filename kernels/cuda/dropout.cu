// Dropout masks. Each iteration computes one block of the generator, i.e. four elements.
#include "kernels/cuda/grid.cuh"
#include "kernels/dropout.hpp"

namespace ringsmith::kernels::cuda {

void dropout_mask(std::span<bool> keep, double keep_probability, PhiloxState state) {
  const std::uint64_t below = keep_below(keep_probability);
  const std::int64_t n = std::ssize(keep);
  bool* const out = keep.data();
  for_each(ceil_div(n, 4), [=] __device__(std::int64_t b) {
    const PhiloxBlock words = philox(state.seed, state.offset + static_cast<std::uint64_t>(b));
    for (int k = 0; k < 4 && 4 * b + k < n; ++k)
      out[4 * b + k] = words[static_cast<std::size_t>(k)] < below;
  });
}

}  // namespace ringsmith::kernels::cuda
