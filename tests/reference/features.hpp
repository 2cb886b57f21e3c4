// Runs of PyTorch's DistributedDataParallel with its features: hooks, accumulation, join, a static
// graph, BatchNorm. Made by torch_ddp_features.py, which describes the files.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "runtime/comm/process_group.hpp"

namespace ringsmith::reference {

// Collective over the group, whose size must be the run's "world". Oracle kernels must be chosen.
// Trains as the run did and compares loss, parameters and buffers after every step: bit for bit on
// the CPU, but for what run_tolerance() allows. Returns the first complaint, after the last step.
[[nodiscard]] std::string replay_feature(const nlohmann::json& run,
                                         const std::shared_ptr<comm::ProcessGroup>& group);

// 0 where the bits must be PyTorch's; else how far a number may be off, relative to the largest of
// its tensor, and why: see the definition.
[[nodiscard]] double run_tolerance(const nlohmann::json& run, Device device);

}  // namespace ringsmith::reference
