// Finds an element of a strided View from its number.
//
// A Nest (kernels/nest.hpp: dimensions merged where all operands allow it) is passed to the kernel
// by value. Every thread splits its element's number, innermost dimension first. This needs one
// division for each dimension except the outermost, of 32 bits where possible, because a GPU needs
// about 70 instructions to divide 64 bits.
#pragma once

#include "kernels/cuda/grid.cuh"
#include "kernels/nest.hpp"

namespace ringsmith::kernels::cuda {

// Replaces n with the quotient of n and size, and returns the remainder.
__device__ inline std::int64_t take_digit(std::int64_t& n, std::int64_t size) {
  if (((n | size) >> 32) == 0) {
    const auto a = static_cast<std::uint32_t>(n), b = static_cast<std::uint32_t>(size);
    const std::uint32_t quotient = a / b;
    n = quotient;
    return a - quotient * b;
  }
  const std::int64_t quotient = n / size, remainder = n - quotient * size;
  n = quotient;
  return remainder;
}

// Offset of element number i in each operand.
template <int N>
__device__ Offsets<N> offsets_of(const Nest<N>& nest, std::int64_t i) {
  Offsets<N> at{};
  for (int d = nest.dims - 1; d > 0; --d) {
    const std::int64_t digit = take_digit(i, nest.sizes[d]);
    for (int k = 0; k < N; ++k) at[k] += digit * nest.strides[d][k];
  }
  for (int k = 0; k < N; ++k) at[k] += i * nest.strides[0][k];
  return at;
}

template <int N>
std::int64_t numel(const Nest<N>& nest) {
  std::int64_t n = 1;
  for (int d = 0; d < nest.dims; ++d) n *= nest.sizes[static_cast<std::size_t>(d)];
  return n;
}

// True for a single run that is contiguous in every operand.
template <int N>
bool is_contiguous(const Nest<N>& nest) {
  if (nest.dims != 1) return false;
  for (int k = 0; k < N; ++k)
    if (nest.inner(k) != 1 && nest.inner_size() != 1) return false;
  return true;
}

// Rewrites the innermost dimension as packs of n elements, i.e. divides its size and multiplies its
// strides by n. Returns false, without a change, if operand 0 is not contiguous there, another
// operand is neither contiguous nor broadcast, or rows do not start and end at packs.
template <int N>
bool in_packs(Nest<N>& nest, std::int64_t n) {
  const std::size_t last = nest.last();
  if (nest.sizes[last] % n != 0) return false;
  for (std::size_t k = 0; k < N; ++k) {
    const std::int64_t inner = nest.strides[last][k];
    if (inner != 1 && (inner != 0 || k == 0)) return false;
    for (std::size_t d = 0; d < last && inner == 1; ++d)
      if (nest.strides[d][k] % n != 0) return false;
  }
  nest.sizes[last] /= n;
  for (std::size_t k = 0; k < N; ++k) nest.strides[last][k] *= n;
  return true;
}

}  // namespace ringsmith::kernels::cuda
