// How good a model is on data that it does not train on; all ranks share the work.
//
//   held-out samples  0 1 2 3 4 5 6     on 3 ranks:  0 3 6 | 1 4 | 2 5     each once
//
// A sampler that gives every rank equally many would count some twice, and a mean of the ranks'
// means would give a sample of a shorter share more weight. So each rank adds up its losses, and
// counts, and the sums of all ranks are divided: losses are float, the sums double, where adding a
// few thousand of them rounds nothing, and the result is the same for any number of ranks as far as
// the model's outputs are.
//
// Training goes on as if nothing had happened: no graph, no random numbers and no running
// statistics are touched, because the model is in evaluation mode (a layer of your own that ignores
// the mode is on its own). Each rank evaluates with its own buffers.
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
  double accuracy = 0;       // share of targets to which the model gives the largest output
  std::int64_t samples = 0;  // of all ranks
  std::int64_t targets = 0;  // labels, or bytes
};

struct EvaluationPlan {
  std::int64_t batch = 64;        // samples at once
  std::int64_t most = 1LL << 62;  // samples of all ranks; if there are more, evenly spread ones
};

// Collective. The model's outputs are (..., classes), the targets i64 and one for each row of them.
// UsageError if the dataset is empty. If the loss is not finite, every rank throws, rank 0 an Error
// and the others QuietStop: after the last step, nothing else would say so.
[[nodiscard]] Evaluation evaluate(comm::ProcessGroup& group, Module& model, const Dataset& held_out,
                                  const EvaluationPlan& plan = {});

// Collective: the same if any tensor of the state holds NaN or an infinity. when: "after step 24".
void require_finite(comm::ProcessGroup& group, const StateDict& state, const std::string& when);

// On all ranks of the group, which know the same: throws likewise if too many of a run's steps were
// skipped by its GradScaler, so that the model is hardly trained: more than half of at least 20
// steps, or all of fewer.
void require_updates(const comm::ProcessGroup& group, std::int64_t steps, std::int64_t updates);

}  // namespace ringsmith::apps
