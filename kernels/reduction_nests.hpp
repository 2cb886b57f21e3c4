// The dimensions of a reduction, taken apart: those that stay, of the result (operand 0) and the
// input (operand 1), and those that go, of the input.
#pragma once

#include "kernels/nest.hpp"

namespace ringsmith::kernels {

struct ReductionNests {
  Nest<2> kept;
  Nest<1> reduced;
};

// As in kernels/reduction.hpp: out has the sizes of x, and stride 0 where x is reduced.
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
