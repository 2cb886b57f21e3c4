// The training loop, the same for every model: fetch, forward, backward, update; timed and
// reported.
//
//   |data|---forward---|------backward------|--optim--|   spans of one step on the training thread
//                 loss ^ ............. checked ^           the ranks' losses travel meanwhile
//
// A GPU works behind the host: while spans are recorded, each phase waits for it at its end, so
// that the time is seen where it was spent. Without them (--no-trace) only the loss is waited for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "labs/apps/common/options.hpp"
#include "labs/apps/common/step_clock.hpp"
#include "runtime/base/json_lines.hpp"
#include "runtime/comm/process_group.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith::apps {

struct Recipe {
  std::int64_t steps = 0;
  Device device;                    // of the model
  const char* unit = "samples";     // of throughput
  double units_per_step = 0;        // of all ranks
  std::function<void()> fetch;      // the next batch
  std::function<Tensor()> forward;  // its loss, one element; backward() on it makes the gradients
  std::function<double(std::int64_t step)> update;  // the optimizer; returns the learning rate used
};

// metrics.jsonl and its folder; on other ranks than 0 nothing.
struct RunFiles {
  std::string folder;  // of rank 0, known to all
  std::unique_ptr<JsonLines> metrics;
};

// Collective: if rank 0 cannot make the folder, all ranks stop, and rank 0 says why.
[[nodiscard]] RunFiles open_run_files(comm::ProcessGroup& group, const TrainOptions& o);

struct TrainResult {
  double seconds = 0;
  double first_loss = 0;  // means over the ranks
  double last_loss = 0;
};

// Collective. Errors as LossExchange::finish.
[[nodiscard]] TrainResult train(comm::ProcessGroup& group, const TrainOptions& o,
                                const Recipe& recipe, RunFiles& files, StepClock& clock);

}  // namespace ringsmith::apps
