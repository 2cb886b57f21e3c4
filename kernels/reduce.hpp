// Reductions of several arrays into one value per element: the arithmetic of every collective.
//
//     out[i] = (...((s0[i] op s1[i]) op s2[i]) op ...)        from left to right, for every i
//
// Each pairwise operation rounds once to the element type (f16 and bf16 compute in float and round
// after every addition), so that a sum of n arrays in one call and n - 1 calls of two arrays give
// the same bits: a ring that adds one neighbour at a time and a direct algorithm that reads all
// ranks at once agree whenever they add in the same order.
//
// NaN: min and max propagate it from either side. Equal values (+0 and -0) keep the later operand.
// Integers wrap around. A scaled source contributes  x * scale,  rounded once to the element type
// (floating types only): average = sum of contributions times 1/world.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/dtype.hpp"
#include "runtime/base/units.hpp"

namespace ringsmith::kernels {

enum class Reduction : std::uint8_t { sum, prod, min, max };

// A reduction whose raw contributions may have a factor each.
struct Arithmetic {
  Reduction reduction = Reduction::sum;
  bool scaled = false;  // every raw contribution is multiplied by `scale` before it is added
  double scale = 1.0;
};

struct ReduceSource {  // no initial values: arrays of it are made in every call
  const std::byte* data;
  bool scaled;
};

constexpr std::size_t kMaxReduceSources = 64;

// UsageError unless there are 1 to 64 sources, and no integers that are to be scaled.
void check_reduce(DType dtype, std::span<const ReduceSource> sources, double scale);

namespace cpu {

// Writes the reduction of 1..64 sources to every destination (any number, also none). A destination
// may be exactly a source; no other overlap. One source: a (scaled) copy, of any dtype when not
// scaled. Pointers may be misaligned: that is slower, not wrong. bool is a UsageError.
void reduce(DType dtype, Reduction op, std::span<const ReduceSource> sources,
            std::span<std::byte* const> destinations, Elements count, double scale = 1.0);

// The same, one element at a time in the order of the formula above: the oracle.
void reduce_oracle(DType dtype, Reduction op, std::span<const ReduceSource> sources,
                   std::span<std::byte* const> destinations, Elements count, double scale = 1.0);

}  // namespace cpu

// On the current device and stream, with the bits of cpu::reduce. Pointers are memory that the
// device can reach: its own, a peer's, or pinned host memory. The arrays that the spans hold are
// host memory and may be gone when the call returns.
namespace cuda {

void reduce(DType dtype, Reduction op, std::span<const ReduceSource> sources,
            std::span<std::byte* const> destinations, Elements count, double scale = 1.0);

}  // namespace cuda
}  // namespace ringsmith::kernels
