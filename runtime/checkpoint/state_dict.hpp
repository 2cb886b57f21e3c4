// Named tensors: what a module or an optimizer saves, and what a checkpoint file holds.
#pragma once

#include <map>
#include <string>

#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

using StateDict = std::map<std::string, Tensor>;

}  // namespace ringsmith
