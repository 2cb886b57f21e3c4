// The end of a training run: model, trace, tables.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "labs/apps/common/options.hpp"
#include "labs/apps/common/train_loop.hpp"
#include "runtime/checkpoint/safetensors.hpp"

namespace ringsmith::apps {

// Text for people, from rank 0: on standard output, or with --json, which has that to itself, on
// standard error.
void say(const TrainOptions& o, const comm::ProcessGroup& group, const std::string& text);

struct Ending {
  TrainResult result;
  Device device;              // of the model
  double units_per_step = 0;  // of all ranks
  const char* unit = "samples";
  std::string headline;  // what the run reached, e.g. "validation loss 1.93 nats/byte"
  std::vector<std::pair<std::string, double>> figures;  // the same for --json
  StateDict model;
  Metadata metadata;
};

// Collective. Writes model.safetensors and trace.json, prints headline, tables and files.
void finish_run(comm::ProcessGroup& group, const TrainOptions& o, RunFiles& files, StepClock& clock,
                const Ending& ending);

}  // namespace ringsmith::apps
