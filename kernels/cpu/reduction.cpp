// The oracle of sums, which adds in PyTorch's order. max has one version for both modes, because
// comparisons do not round.
#include "kernels/reduction.hpp"

#include <cmath>

#include "kernels/cpu/cascade.hpp"
#include "kernels/cpu/reduction_loops.hpp"
#include "kernels/mode.hpp"

namespace ringsmith::kernels::cpu {

namespace {

template <class T>
struct OracleSums {
  static constexpr bool kParallel = false;
  static T run(const T* x, std::int64_t n, std::int64_t stride) {
    const auto term = [=](std::int64_t i) { return x[i * stride]; };
    return stride == 1 ? contiguous_sum<T>(n, term) : row_sum<T>(n, term);
  }
  static void columns(Matrix<const T> x, std::span<T> out, Store store) {
    column_sum(x, out, store);
  }
};

// NaN beats every number. Of equal values the first is kept.
template <class T>
bool beats(T challenger, T best) {
  return challenger > best || (std::isnan(challenger) && !std::isnan(best));
}

}  // namespace

template <class T>
void sum(View<T> out, View<const T> x) {
  if (mode() == Mode::fast) return fast::sum(out, x);
  sum_with<OracleSums<T>>(out, x);
}

template <class T>
void max(View<T> values, View<std::int64_t> indices, View<const T> x, Reduced dim) {
  const Nest<3> nest = nest_of<3>({&values.layout, &indices.layout, &x.layout});
  for_each_run<3>(nest, [&](const Offsets<3>& at, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const T* const row = x.data + at[2] + i * nest.inner(2);
      std::int64_t best = 0;
      for (std::int64_t k = 1; k < dim.n; ++k)
        if (beats(row[k * dim.stride], row[best * dim.stride])) best = k;
      values.data[at[0] + i * nest.inner(0)] = row[best * dim.stride];
      indices.data[at[1] + i * nest.inner(1)] = best;
    }
  });
}

template <class T>
void max_backward(View<T> grad_x, View<const std::int64_t> indices, View<const T> g, Reduced dim) {
  const Nest<3> nest = nest_of<3>({&grad_x.layout, &indices.layout, &g.layout});
  for_each_run<3>(nest, [&](const Offsets<3>& at, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      T* const row = grad_x.data + at[0] + i * nest.inner(0);
      for (std::int64_t k = 0; k < dim.n; ++k) row[k * dim.stride] = T{};
      row[indices.data[at[1] + i * nest.inner(1)] * dim.stride] = g.data[at[2] + i * nest.inner(2)];
    }
  });
}

template <class T>
void max_all_backward(std::span<T> grad_x, std::span<const T> x, std::span<const T> maximum,
                      std::span<const T> g) {
  const T top = maximum[0];
  const auto hit = [=](T v) { return v == top || (std::isnan(v) && std::isnan(top)); };
  std::int64_t count = 0;
  for (const T v : x) count += hit(v) ? 1 : 0;
  const T share = g[0] / static_cast<T>(count);
  for (std::size_t i = 0; i < x.size(); ++i) grad_x[i] = hit(x[i]) ? share : T{};
}

RINGSMITH_FLOAT_AND_DOUBLE(sum)
RINGSMITH_FLOAT_AND_DOUBLE(max)
RINGSMITH_FLOAT_AND_DOUBLE(max_backward)
RINGSMITH_FLOAT_AND_DOUBLE(max_all_backward)

}  // namespace ringsmith::kernels::cpu
