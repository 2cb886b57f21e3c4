// Do all ranks hold the same model? Asked once, before anything is averaged.
//
// Ranks that differ by one layer would exchange gradients of different meaning, or hang. Each rank
// describes its model as lines of text, one for each tensor; first only the lengths and a digest
// are compared, and the lines are exchanged when these differ, to say where.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/process_group.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

// "parameter 'fc.weight' f32[4, 5]"; kind is the leading word.
[[nodiscard]] std::string describe_tensor(const std::string& kind, const std::string& name,
                                          const Tensor& tensor);

// Collective. UsageError on every rank, with the same message, unless all lines are equal:
// "ranks do not hold the same model: entry 2 is parameter 'fc.weight' f32[4, 5] on ranks 0, 1 but
// parameter 'fc.weight' f32[4, 6] on rank 2".
void verify_same_model(comm::ProcessGroup& group, const std::vector<std::string>& lines);

}  // namespace ringsmith
