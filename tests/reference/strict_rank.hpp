// One rank of a golden trajectory, built from the library's own parts.
#pragma once

#include <memory>
#include <string>

#include "runtime/comm/process_group.hpp"
#include "tests/reference/strict.hpp"

namespace ringsmith::reference {

// Collective over the group, whose size must be run.world. Oracle kernels must be selected. Trains
// like the run on the group's device, and compares batches, loss and parameters of every step: bit
// for bit on the CPU, within tolerance() on a GPU, which sums in another order. Returns the first
// difference only after the last step, so that no rank leaves the others waiting.
[[nodiscard]] std::string train_and_compare(const StrictRun& run,
                                            const std::shared_ptr<comm::ProcessGroup>& group);

}  // namespace ringsmith::reference
