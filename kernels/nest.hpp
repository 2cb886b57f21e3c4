// Several strided operands of one shape, merged into as few dimensions as possible.
//
// nest_of() drops dimensions of size 1, orders the others by the strides of the first operand (the
// output) and merges neighbouring dimensions that are contiguous in every operand:
//
//   out (4,3,5) contiguous, in (4,3,5) contiguous      ->  one run of 60
//   out (4,3,5) contiguous, in (5) broadcast to it     ->  12 runs of 5, each of which rereads `in`
//
// inner(k) is operand k's stride in the innermost run. A Nest is traversed by kernels/cpu/loops.hpp
// on the CPU and by kernels/cuda/strided.cuh on a GPU.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/view.hpp"

namespace ringsmith::kernels {

template <int N>
using Offsets = std::array<std::int64_t, N>;

template <int N>
struct Nest {
  int dims = 0;  // at least 1; the last dimension is the innermost
  std::array<std::int64_t, kMaxDims> sizes{};
  std::array<Offsets<N>, kMaxDims> strides{};

  [[nodiscard]] constexpr std::int64_t inner_size() const { return sizes[last()]; }
  [[nodiscard]] constexpr std::int64_t inner(int operand) const {
    return strides[last()][static_cast<std::size_t>(operand)];
  }
  [[nodiscard]] constexpr std::int64_t runs() const {
    std::int64_t n = 1;
    for (std::size_t d = 0; d < last(); ++d) n *= sizes[d];
    return n;
  }
  [[nodiscard]] constexpr std::size_t last() const { return static_cast<std::size_t>(dims - 1); }
};

template <int N>
Nest<N> one_run(std::int64_t n, const Offsets<N>& strides) {
  Nest<N> nest;
  nest.dims = 1;
  nest.sizes[0] = n;
  nest.strides[0] = strides;
  return nest;
}

template <int N>
Nest<N> nest_of(const std::array<const Layout*, N>& operands) {
  const Layout& out = *operands[0];
  Nest<N> nest;
  std::array<std::size_t, kMaxDims> order{};
  std::size_t kept = 0;
  for (int d = 0; d < out.dims; ++d) {
    if (out.sizes[static_cast<std::size_t>(d)] == 0) return one_run<N>(0, {});  // nothing to do
    if (out.sizes[static_cast<std::size_t>(d)] != 1) order[kept++] = static_cast<std::size_t>(d);
  }
  if (kept == 0) return one_run<N>(1, {});  // one element
  std::stable_sort(order.begin(), order.begin() + kept,
                   [&](std::size_t a, std::size_t b) { return out.strides[a] > out.strides[b]; });
  for (std::size_t i = 0; i < kept; ++i) {
    const std::size_t d = order[i];
    Offsets<N> strides;
    for (std::size_t k = 0; k < N; ++k) strides[k] = operands[k]->strides[d];
    bool merges = nest.dims > 0;
    for (std::size_t k = 0; k < N && merges; ++k)
      merges = nest.strides[nest.last()][k] == strides[k] * out.sizes[d];
    if (merges) {
      nest.sizes[nest.last()] *= out.sizes[d];
      nest.strides[nest.last()] = strides;
    } else {
      nest.sizes[static_cast<std::size_t>(nest.dims)] = out.sizes[d];
      nest.strides[static_cast<std::size_t>(nest.dims)] = strides;
      ++nest.dims;
    }
  }
  return nest;
}

// The dimensions of a reduction: `kept` has the dimensions that remain (operand 0 is the result,
// operand 1 the input), `reduced` the others (input only).
struct ReductionNests {
  Nest<2> kept;
  Nest<1> reduced;
};

// As in kernels/reduction.hpp, out has the sizes of x, and stride 0 where x is reduced.
inline ReductionNests reduction_nests(const Layout& out, const Layout& x) {
  Layout kept_out, kept_x, reduced;
  for (std::size_t d = 0; d < static_cast<std::size_t>(x.dims); ++d) {
    if (out.strides[d] == 0) {
      const auto to = static_cast<std::size_t>(reduced.dims++);
      reduced.sizes[to] = x.sizes[d];
      reduced.strides[to] = x.strides[d];
    } else {
      const auto to = static_cast<std::size_t>(kept_out.dims++);
      kept_x.dims = kept_out.dims;
      kept_out.sizes[to] = kept_x.sizes[to] = x.sizes[d];
      kept_out.strides[to] = out.strides[d];
      kept_x.strides[to] = x.strides[d];
    }
  }
  return {nest_of<2>({&kept_out, &kept_x}), nest_of<1>({&reduced})};
}

}  // namespace ringsmith::kernels
