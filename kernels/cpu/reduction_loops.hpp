// Splits a sum over some dimensions into runs.
//
//   x (4, 3, 5) summed over dim 0:       columns of a (4, 15) matrix
//   x (4, 3, 5) summed over dims 1, 2:   4 contiguous runs of 15
//   x (4, 3, 5) summed over dims 0, 2:   3 results, 4 runs of 5 each
//
// Sums supplies run(x, n, stride) -> T, columns(Matrix, out, Store), and kParallel, which is true
// if several threads may share the results. The oracle's kParallel is false, because in PyTorch the
// order within a column depends on the number of columns.
#pragma once

#include <limits>
#include <span>

#include "kernels/cpu/loops.hpp"
#include "kernels/matmul.hpp"
#include "kernels/nest.hpp"

namespace ringsmith::kernels::cpu {

template <class Sums, class T>
void sum_with(View<T> out, View<const T> x) {
  const auto nests = reduction_nests(out.layout, x.layout);
  const auto& kept = nests.kept;  // no structured binding, because clang 14 cannot capture one
  const auto& runs = nests.reduced;
  const std::int64_t n = runs.inner_size(), stride = n == 0 ? 0 : runs.inner(0);
  const std::int64_t so = kept.inner(0), sx = kept.inner(1);
  // Adding whole rows of adjacent columns is faster than one strided run per result.
  const bool columns = so == 1 && sx == 1 && kept.inner_size() > 1 && stride != 1;
  for_each_run<2>(
      kept,
      [&](const Offsets<2>& at, std::int64_t count) {
        T* const to = out.data + at[0];
        const T* const from = x.data + at[1];
        for (std::int64_t i = 0; i < count; ++i) to[i * so] = T{};
        bool first = true;
        walk_runs<1>(runs, 0, n == 0 ? 0 : runs.runs(), [&](const Offsets<1>& outer) {
          if (columns) {
            Sums::columns({from + outer[0], n, count, stride, 1},
                          std::span<T>(to, static_cast<std::size_t>(count)),
                          first ? Store::replace : Store::add);
          } else {
            for (std::int64_t i = 0; i < count; ++i) {
              const T run = Sums::run(from + i * sx + outer[0], n, stride);
              to[i * so] = first ? run : to[i * so] + run;
            }
          }
          first = false;
        });
      },
      Sums::kParallel ? grain_of(n * runs.runs()) : std::numeric_limits<std::int64_t>::max());
}

}  // namespace ringsmith::kernels::cpu
