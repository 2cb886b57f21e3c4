// Reductions of several arrays to one: the arithmetic of every collective.
//
//     out[i] = (...((s0[i] op s1[i]) op s2[i]) op ...)        from left to right, for every i
//
// Each pairwise operation rounds once to the element type (f16 and bf16 compute in float and round
// after every operation). Therefore one sum of n arrays has the same bits as n - 1 sums of two. A
// ring that adds one neighbour at a time and a direct algorithm that reads all ranks in one pass
// agree if they add in the same order.
//
// min and max propagate NaN from either side. Of equal values (+0 and -0), the later one is kept.
// Integers wrap around. A scaled source contributes x * scale, rounded to the element type
// (floating types only). An average is the sum of sources scaled by 1 / world.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/dtype.hpp"
#include "runtime/base/units.hpp"

namespace ringsmith::kernels {

enum class Reduction : std::uint8_t { sum, prod, min, max };

struct Arithmetic {
  Reduction reduction = Reduction::sum;
  bool scaled = false;  // every raw contribution is multiplied by `scale` before it is added
  double scale = 1.0;
};

struct ReduceSource {  // no default values, because every call builds arrays of sources
  const std::byte* data;
  bool scaled;
};

constexpr std::size_t kMaxReduceSources = 64;

// Throws UsageError if there are no sources or more than 64, or if integers would be scaled.
void check_reduce(DType dtype, std::span<const ReduceSource> sources, double scale);

namespace cpu {

// Writes the reduction of 1 to 64 sources to every output (there may be none). An output may
// coincide with a source, but no other overlap is allowed. With one source, this is a copy, which
// supports any dtype if it is not scaled. Misaligned pointers only cost time. Throws UsageError for
// bool, unless this is a copy.
void reduce(DType dtype, Reduction op, std::span<const ReduceSource> sources,
            std::span<std::byte* const> outputs, Elements count, double scale = 1.0);

// The oracle of reduce(), which processes one element at a time.
void reduce_oracle(DType dtype, Reduction op, std::span<const ReduceSource> sources,
                   std::span<std::byte* const> outputs, Elements count, double scale = 1.0);

}  // namespace cpu

// Enqueues the reduction on the current device and stream. It gives the same bits as cpu::reduce().
// The pointers must be to memory that the device can access: its own, a peer's, or pinned host
// memory. The spans need to be valid only until the call returns.
namespace cuda {

void reduce(DType dtype, Reduction op, std::span<const ReduceSource> sources,
            std::span<std::byte* const> outputs, Elements count, double scale = 1.0);

}  // namespace cuda
}  // namespace ringsmith::kernels
