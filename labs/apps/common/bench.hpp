// --bench: medians of a step and its parts on synthetic data, in the words of
// tests/bench/peers/torch_common.py, so that one parser reads both.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/comm/process_group.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith::apps {

struct BenchRecipe {
  std::string name;
  const char* unit = "samples";
  std::int64_t warmup = 0;
  std::int64_t steps = 0;
  std::int64_t batch = 0;          // samples of each rank
  double units_per_rank_step = 0;  // samples or tokens
  std::int64_t parameters = 0;
  int threads = 1;
  Device device;                                 // that the clock waits for at the end of each part
  std::function<void(std::int64_t step)> fetch;  // a batch made beforehand: not timed
  std::function<void()> zero_grad;
  std::function<Tensor()> forward;  // the loss
  std::function<void()> update;
  // Runs its argument without gradient synchronisation.
  std::function<void(const std::function<void()>&)> without_sync;
};

// Collective. The line of results; the same on every rank.
[[nodiscard]] std::string bench(comm::ProcessGroup& group, const BenchRecipe& recipe);

}  // namespace ringsmith::apps
