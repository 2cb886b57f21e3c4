// Sums and maxima over any dimensions of a strided tensor, by the folds of kernels/cuda/fold.cuh.
//
//   sum, max           a fold over rows or columns; sum reads contiguous terms in packs of four
//   max_backward       a thread per element of the gradient. Compares the element's index with
//                      the index of the maximum
//   max_all_backward   a fold counts the maxima, then a thread per element; the count remains on
//                      the device
#include "kernels/cuda/fold.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/nest.hpp"
#include "kernels/reduction.hpp"

namespace ringsmith::kernels::cuda {

namespace {

template <class T>
struct Best {
  T value;
  std::int64_t index;
};
template <class T>
__device__ Best<T> from_lane_xor(const Best<T>& best, int lanes) {
  return {__shfl_xor_sync(0xffffffffU, best.value, lanes),
          __shfl_xor_sync(0xffffffffU, best.index, lanes)};
}

// NaN beats every number. Of equal values the first wins.
template <class T>
struct MaxInto {
  using Value = Best<T>;
  static constexpr bool kPacks = false;
  const T* x;
  T* values;
  std::int64_t* indices;
  __device__ Value none() const { return {T(0), -1}; }
  __device__ Value term(std::int64_t at, std::int64_t number) const { return {x[at], number}; }
  __device__ Value combine(const Value& a, const Value& b) const {
    if (a.index < 0) return b;
    if (b.index < 0) return a;
    const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    if (nan_a != nan_b) return nan_a ? a : b;
    if (!nan_a && a.value != b.value) return a.value > b.value ? a : b;
    return a.index < b.index ? a : b;
  }
  __device__ void finish(const Offsets<3>& at, const Value& best) const {
    values[at[0]] = best.value;
    indices[at[1]] = best.index;
  }
};

template <class T>
__device__ bool hits(T x, T maximum) {
  return x == maximum || (is_nan(x) && is_nan(maximum));
}

template <class T>
struct CountHits : Sums<std::int64_t> {
  static constexpr bool kPacks = false;
  const T *x, *maximum;
  std::int64_t* count;
  __device__ std::int64_t term(std::int64_t at, std::int64_t) const {
    return hits(x[at], *maximum) ? 1 : 0;
  }
  __device__ void finish(const Offsets<2>&, std::int64_t value) const { *count = value; }
};

}  // namespace

template <class T>
void sum(View<T> out, View<const T> x) {
  const auto [kept, reduced] = reduction_nests(out.layout, x.layout);
  const SumInto<T> fold{{}, x.data, out.data, false};
  fold_nest(fold, kept, reduced, folds_in_packs(x.data, kept, reduced));
}

template <class T>
void max(View<T> values, View<std::int64_t> indices, View<const T> x, Reduced dim) {
  const Nest<3> kept = nest_of<3>({&values.layout, &indices.layout, &x.layout});
  fold_nest(MaxInto<T>{x.data, values.data, indices.data}, kept, one_run<1>(dim.n, {dim.stride}),
            false);
}

template <class T>
void max_backward(View<T> grad_x, View<const std::int64_t> indices, View<const T> g, Reduced dim) {
  const Nest<3> nest = nest_of<3>({&grad_x.layout, &indices.layout, &g.layout});
  const std::int64_t slices = numel(nest);
  T* const to = grad_x.data;
  const std::int64_t* const index = indices.data;
  const T* const from = g.data;
  const bool inner = dim.stride == 1;
  for_each(slices * dim.n, [=] __device__(std::int64_t i) {
    std::int64_t rest = i;
    const std::int64_t digit = take_digit(rest, inner ? dim.n : slices);
    const std::int64_t k = inner ? digit : rest;
    const Offsets<3> at = offsets_of(nest, inner ? rest : digit);
    to[at[0] + k * dim.stride] = index[at[1]] == k ? from[at[2]] : T(0);
  });
}

template <class T>
void max_all_backward(std::span<T> grad_x, std::span<const T> x, std::span<const T> maximum,
                      std::span<const T> g) {
  const auto n = static_cast<std::int64_t>(x.size());
  const Scratch<std::int64_t> count(1);
  const CountHits<T> fold{{}, x.data(), maximum.data(), count.data()};
  fold_flat(fold, n, false);
  T* const to = grad_x.data();
  const T *const from = g.data(), *const input = x.data(), *const largest = maximum.data();
  const std::int64_t* const hit_count = count.data();
  for_each(n, [=] __device__(std::int64_t i) {
    to[i] = hits(input[i], *largest) ? *from / static_cast<T>(*hit_count) : T(0);
  });
}

RINGSMITH_FLOAT_AND_DOUBLE(sum)
RINGSMITH_FLOAT_AND_DOUBLE(max)
RINGSMITH_FLOAT_AND_DOUBLE(max_backward)
RINGSMITH_FLOAT_AND_DOUBLE(max_all_backward)
RINGSMITH_HALVES(sum)

}  // namespace ringsmith::kernels::cuda
