// Finds the first invalid item of n, so that a bad index raises an error that names the index,
// instead of silently spoiling the results. The kernels record the item in pinned memory, which the
// host reads later (runtime/device/findings.hpp), so that a step does not wait for the check.
#pragma once

#include "kernels/cuda/grid.cuh"
#include "runtime/device/findings.hpp"

namespace ringsmith::kernels::cuda {

// If bad(i), a device function, is true for any i < n, a later check of the findings throws
// UsageError(say(i, values[i])) for the smallest such i.
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
    // A captured check runs again before the host has read its earlier result, and must not replace
    // that result's value with a valid one.
    const auto position = static_cast<std::int64_t>(finding->position);
    if (finding->position != findings::kNone && bad(position)) finding->value = values[position];
  });
  pending.launched();
}

}  // namespace ringsmith::kernels::cuda
