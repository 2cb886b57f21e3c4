// A training run of forked ranks that are killed at given moments and started again. The
// coordinator runs in the test.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/process_group.hpp"
#include "runtime/data/sampler.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith::test {

enum class Death : std::uint8_t { meeting, forward, reducing, sending, receiving, voting, counted };

struct Kill {
  int rank = 0;
  std::int64_t step = 0;
  Death death = Death::forward;
  bool returns = true;  // is started again, and joins with the next step
};

struct PerStepPlan {
  int world = 3;
  int least = 1;
  std::int64_t steps = 8;
  std::vector<Kill> kills;
  std::vector<Kill> troubles;           // communication fails once, but the rank survives
  std::int64_t accumulate = 1;          // batches per rank in a step
  std::vector<std::int64_t> overflows;  // steps whose gradients are infinite on the first rank
  std::int64_t begin = 0;               // steps done by an earlier training run
  int odd = -1;                         // the rank that starts with a different state
  std::optional<Kill> stop;             // SIGTERM in forward; Kill::death is ignored
  comm::GroupOptions group = {};
  std::chrono::milliseconds patience{20'000};
};

struct CountedStep {
  std::int64_t step = 0, quorum = 0;
  std::vector<int> ranks;
  int joining = 0;
  std::vector<std::int64_t> samples;  // of this rank
  std::string digest;                 // of parameters, momentum, scale and updates, after the step
  bool operator==(const CountedStep&) const = default;
};

struct PerStepResult {
  std::vector<std::vector<CountedStep>> steps;  // by rank, in order, over all its processes
  std::vector<int> processes;                   // by rank: number of processes
  std::vector<std::string> errors;              // by rank: its standard error
  std::vector<int> codes;                       // by rank: exit code of the last process
  int failed = 0;                               // tries that did not count, summed over the ranks
  std::vector<std::vector<float>> parameters;   // by rank, at the end
};

constexpr std::int64_t kPerStepBatch = 2;
constexpr std::int64_t kPerStepSamples = 31;
constexpr std::uint64_t kPerStepSeed = 5;

// Waits at most a minute, then kills the ranks that still run.
[[nodiscard]] PerStepResult run_per_step(const PerStepPlan& plan);

// Trains in one process without a scaler. Each counted step uses its contributors' samples in
// `history`. Returns the parameters at the end.
[[nodiscard]] std::vector<float> run_serially(const PerStepPlan& plan,
                                              const std::vector<CountedStep>& history);

}  // namespace ringsmith::test
