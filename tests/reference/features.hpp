// Runs of PyTorch's DistributedDataParallel with its features. torch_ddp_features.py makes and
// describes the files.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "runtime/comm/process_group.hpp"

namespace ringsmith::reference {

// Collective over the group, whose size must be the run's "world". Oracle kernels must be selected.
// Trains as the run did, and compares loss, parameters and buffers after every step, within
// run_tolerance(). Returns the first difference, after the last step.
[[nodiscard]] std::string replay_feature(const nlohmann::json& run,
                                         const std::shared_ptr<comm::ProcessGroup>& group);

// Returns 0 if the bits must be PyTorch's, otherwise the permitted error relative to the tensor's
// largest value.
[[nodiscard]] double run_tolerance(const nlohmann::json& run, Device device);

}  // namespace ringsmith::reference
