// Finds the first invalid item of n, so that a bad index raises an error that names the index,
// instead of silently spoiling the results.
//
// One kernel does the check. Each of its blocks that finds an invalid item records its first, with
// the value, in a place of its own in pinned memory. The host reads these places later
// (runtime/device/findings.hpp), so that a step does not wait for the check. If all items are
// valid, the kernel does not touch the host's memory, because each access to it costs a
// microsecond.
#pragma once

#include "kernels/cuda/grid.cuh"
#include "runtime/device/findings.hpp"

namespace ringsmith::kernels::cuda {

template <class Bad>
__global__ void __launch_bounds__(kThreads)
    record_first_bad(std::int64_t n, Bad bad, const std::int64_t* values,
                     findings::Finding* findings) {
  __shared__ unsigned long long first;
  if (threadIdx.x == 0) first = findings::kNone;
  std::int64_t i = first_item();
  while (i < n && !bad(i)) i += item_stride();
  if (__syncthreads_or(i < n ? 1 : 0) == 0) return;
  if (i < n) atomicMin(&first, static_cast<unsigned long long>(i));
  __syncthreads();
  if (static_cast<unsigned long long>(i) == first) findings[blockIdx.x] = {first, values[i]};
}

// If bad(i), a device function, is true for any i < n, a later check of the findings throws
// UsageError(say(i, values[i])) for the smallest such i.
template <class Bad>
void check_later(std::int64_t n, const Bad& bad, const std::int64_t* values,
                 const findings::Say& say) {
  if (n == 0) return;
  findings::Pending pending(say);
  const auto blocks =
      static_cast<unsigned>(std::min<std::int64_t>(ceil_div(n, kThreads), findings::kBlocks));
  launch(record_first_bad<Bad>, blocks, kThreads, 0, stream(), n, bad, values, pending.findings());
  pending.launched();
}

}  // namespace ringsmith::kernels::cuda
