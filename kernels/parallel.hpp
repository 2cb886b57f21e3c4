// parallel_for: splits [0, n) over kernels::threads() threads.
//
//   parallel_for(rows, 64, [&](std::int64_t begin, std::int64_t end) { ... });
//
// The range is cut into nearly equal pieces: n / grain, rounded up, but at most threads(). The cut
// depends only on (n, grain, threads). parallel_for calls f(0, n) directly if there is one
// thread, the range is short, the call is inside another parallel_for, or another thread is using
// the pool, so results must not depend on the cut. If f throws, so does parallel_for.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/mode.hpp"

namespace ringsmith::kernels {

namespace detail {
using RangeFn = void (*)(const void* f, std::int64_t begin, std::int64_t end);
void parallel_run(std::int64_t n, std::int64_t grain, RangeFn call, const void* f);
}  // namespace detail

// Returns the number of iterations (at least 1) that process about `elements` elements, if each
// processes `size` elements. With fewer elements, a thread costs more than it saves.
constexpr std::int64_t kParallelGrain = 16384;
constexpr std::int64_t grain_of(std::int64_t size, std::int64_t elements = kParallelGrain) {
  return std::max<std::int64_t>(1, elements / std::max<std::int64_t>(1, size));
}

template <class F>
void parallel_for(std::int64_t n, std::int64_t grain, const F& f) {
  if (n <= 0) return;
  if (threads() == 1 || n <= grain) {
    f(std::int64_t{0}, n);
    return;
  }
  detail::parallel_run(
      n, grain,
      [](const void* g, std::int64_t begin, std::int64_t end) {
        (*static_cast<const F*>(g))(begin, end);
      },
      &f);
}

}  // namespace ringsmith::kernels
