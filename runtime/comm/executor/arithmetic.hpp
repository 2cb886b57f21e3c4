// A ReduceOp as the kernels know it: the pairwise operation, and the factor of each contribution.
#pragma once

#include "kernels/reduce.hpp"
#include "runtime/comm/process_group.hpp"

namespace ringsmith::comm {

struct Arithmetic {
  kernels::Reduction reduction = kernels::Reduction::sum;
  bool scaled = false;  // avg: every raw contribution is multiplied by `scale` before it is added
  double scale = 1.0;

  Arithmetic(ReduceOp op, int world) {
    switch (op) {
      case ReduceOp::sum:
        break;
      case ReduceOp::avg:
        scaled = true;
        scale = 1.0 / world;
        break;
      case ReduceOp::prod:
        reduction = kernels::Reduction::prod;
        break;
      case ReduceOp::min:
        reduction = kernels::Reduction::min;
        break;
      case ReduceOp::max:
        reduction = kernels::Reduction::max;
        break;
    }
  }
};

}  // namespace ringsmith::comm
