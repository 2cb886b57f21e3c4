// Measures a model on data that it does not train on; all ranks share the work.
//
//   held-out samples  0 1 2 3 4 5 6     on 3 ranks:  0 3 6 | 1 4 | 2 5     each exactly once
//
// A sampler with equal shares would count some samples twice, and a mean of the ranks' means would
// overweight the samples of a smaller share. So each rank adds up its losses and its counts in
// double, and the sums over all ranks are divided. If all ranks have the same buffers, the result
// does not depend on the number of ranks, up to rounding.
//
// Evaluation does not affect training: there is no graph, and in evaluation mode random numbers and
// running statistics are untouched (unless a custom layer ignores the mode). Each rank evaluates
// with its own buffers.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/comm/process_group.hpp"
#include "runtime/data/loader.hpp"
#include "runtime/nn/module.hpp"

namespace ringsmith::apps {

struct Evaluation {
  double loss = 0;           // mean cross-entropy of a target, in nats
  double accuracy = 0;       // share of targets whose class gets the largest output
  std::int64_t samples = 0;  // of all ranks
  std::int64_t targets = 0;  // labels, or bytes
};

struct EvaluationPlan {
  std::int64_t batch = 64;        // samples per forward pass
  std::int64_t most = 1LL << 62;  // samples over all ranks, evenly spaced in a larger set
};

// Collective. Outputs are (..., classes); targets are i64, one per row of outputs. Throws
// UsageError if the dataset is empty. If the loss is not finite, rank 0 throws an Error and the
// others QuietStop, because after the last step nothing else would detect it.
[[nodiscard]] Evaluation evaluate(comm::ProcessGroup& group, Module& model, const Dataset& held_out,
                                  const EvaluationPlan& plan = {});

// Collective. If a tensor of the state has NaN or infinity on some ranks, the lowest such rank
// throws an Error, and all other ranks throw QuietStop. when: "after step 24".
void require_finite(comm::ProcessGroup& group, const StateDict& state, const std::string& when);

// Throws like evaluate() on all ranks, without communication, if GradScaler skipped too many of the
// run's steps: more than half of at least 20, or all.
void require_updates(const comm::ProcessGroup& group, std::int64_t steps, std::int64_t updates);

}  // namespace ringsmith::apps
