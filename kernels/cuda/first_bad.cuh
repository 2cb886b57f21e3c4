// Finds the first invalid one of n items, so that a bad index raises an error that names it instead
// of spoiling the results silently. The kernels record it in pinned memory, which the host reads at
// a later check (runtime/device/findings.hpp), so a step does not wait for the check of its
// indices.
#pragma once

#include "kernels/cuda/grid.cuh"
#include "runtime/device/findings.hpp"

namespace ringsmith::kernels::cuda {

// Reports UsageError(say(i, values[i])), at a later check of the findings, for the smallest i < n
// for which bad(i), a device function, is true; nothing if there is none.
template <class Bad>
void check_later(std::int64_t n, const Bad& bad, const std::int64_t* values,
                 const findings::Say& say) {
  if (n == 0) return;
  findings::Pending pending(say);
  findings::Finding* const finding = pending.finding();
  for_each(n, [=] __device__(std::int64_t i) {
    if (bad(i)) atomicMin(&finding->position, static_cast<unsigned long long>(i));
  });
  for_each(1, [=] __device__(std::int64_t) {
    if (finding->position != findings::kNone)
      finding->value = values[static_cast<std::int64_t>(finding->position)];
  });
  pending.launched();
}

}  // namespace ringsmith::kernels::cuda
