// Inputs whose reduction is exact in any order, and the bitwise comparison with the result.
//
// A sum of small integers is exact in floating point while it fits into the significand. So every
// algorithm must produce the same bits, and no tolerance can hide a wrong element:
//
//   sum, min, max   integers so small that the type holds the sum of all ranks exactly
//   prod            powers of two and signs
//   avg             like sum, but exact only if 1/world is exact (2, 4, 8 ... ranks). Otherwise
//                   each product and each partial sum is rounded, and the comparison tolerates
//                   errors up to the bound that follows from these roundings. NaN never passes
#pragma once

#include "runtime/comm/process_group.hpp"

namespace ringsmith::apps {

// The expected value of an element: rank's input at index, or, if rank < 0, the reduction over all
// ranks.
struct Expected {
  int rank = -1;
  std::size_t index = 0;
};

struct Pattern {
  comm::ReduceOp op = comm::ReduceOp::sum;
  int world = 1;
  unsigned seed = 0;
};

void fill(comm::Buffer data, const Pattern& pattern, int rank);
void fill_zero(comm::Buffer data);

template <class F>
std::size_t count_wrong(comm::ConstBuffer data, const Pattern& pattern, F expected);

// The parts of count_wrong. Every value is exact as a double, except an average over a number of
// ranks that is not a power of two.
[[nodiscard]] double input_value(const Pattern& pattern, DType dtype, int rank, std::size_t index);
[[nodiscard]] double reduced_value(const Pattern& pattern, DType dtype, std::size_t index);
// The largest difference that rounding can explain; 0 if the bits must be equal.
[[nodiscard]] double tolerance(const Pattern& pattern, DType dtype);
[[nodiscard]] bool element_is(comm::ConstBuffer data, std::size_t i, double value,
                              double tolerance);

template <class F>
std::size_t count_wrong(comm::ConstBuffer data, const Pattern& pattern, F expected) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < data.count().value; ++i) {
    const Expected e = expected(i);
    const bool reduced = e.rank < 0;
    const double value = reduced ? reduced_value(pattern, data.dtype(), e.index)
                                 : input_value(pattern, data.dtype(), e.rank, e.index);
    wrong += element_is(data, i, value, reduced ? tolerance(pattern, data.dtype()) : 0) ? 0 : 1;
  }
  return wrong;
}

}  // namespace ringsmith::apps
