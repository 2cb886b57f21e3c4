// Which of n items is wrong, first of all: a bad index becomes an error that names it, not garbage.
// The kernels write it down in pinned memory, and the host reads that when it comes by
// (runtime/device/findings.hpp): a step does not wait for its indices to be looked at.
#pragma once

#include "kernels/cuda/grid.cuh"
#include "runtime/device/findings.hpp"

namespace ringsmith::kernels::cuda {

// If bad(i), a device function, is true for an i < n: UsageError(say(i, values[i])) for the
// smallest such i, at a later look at the findings.
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
