// Unusual and correct: the ranks announce their batches by an all-reduce, and a rank without one
// contributes a new vector of zeros.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "hooks.hpp"
#include "labs/17-beyond/group.hpp"

namespace lab17 {

struct JoinOptions {
  bool divide_by_initial_world_size = true;
  bool throw_on_early_termination = false;
};

struct InputsExhausted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Join {
 public:
  Join(Group& group, const JoinOptions& options)
      : group_(group), options_(options), present_(std::size_t(group.world()), 1) {}

  bool next(bool have) {
    std::vector<int> now(present_.size(), 0);
    now[std::size_t(group_.rank())] = have ? 1 : 0;
    group_.all_reduce(now);
    const auto there = std::ranges::count(now, 1);
    if (there == 0) return false;
    if (options_.throw_on_early_termination && there < std::ssize(now)) {
      std::string message = "no batch for step " + std::to_string(step_) + " on ranks";
      for (std::size_t r = 0; r < now.size(); ++r)
        message += now[r] == 1 ? "" : " " + std::to_string(r);
      throw InputsExhausted(message);
    }
    present_ = now;
    step_ += 1;
    return true;
  }

  [[nodiscard]] int divisor() const {
    return options_.divide_by_initial_world_size ? group_.world()
                                                 : int(std::ranges::count(present_, 1));
  }
  [[nodiscard]] int authority() const {
    int rank = group_.world() - 1;
    while (present_[std::size_t(rank)] == 0) --rank;
    return rank;
  }

 private:
  Group& group_;
  JoinOptions options_;
  std::vector<int> present_;
  long step_ = 0;
};

template <class Model>
int train_joined(Model& model, Group& group, std::span<const int> batches,
                 const JoinOptions& options) {
  Join join(group, options);
  int steps = 0;
  for (std::size_t at = 0; join.next(at < batches.size()); ++at, ++steps) {
    const bool mine = at < batches.size();
    if (mine) model.backward(batches[at]);
    for (const Bucket& bucket : model.buckets()) {
      std::vector<float> travels(bucket.data.size());
      if (mine)
        std::ranges::transform(bucket.data, travels.begin(),
                               [&](float g) { return g / float(join.divisor()); });
      group.all_reduce(travels);
      if (mine) std::ranges::copy(travels, bucket.data.begin());
    }
    if (mine) model.step();
  }
  // An all-gather in which only one rank has elements is a broadcast.
  Counts counts(std::size_t(group.world()), 0);
  const std::size_t from = std::size_t(join.authority());
  counts[from] = model.state().size();
  std::vector<float> last(model.state().begin(), model.state().end());
  if (group.rank() != join.authority()) last.clear();
  std::vector<float> all(model.state().size());
  group.all_gather(last, counts, all);
  std::ranges::copy(all, model.state().begin());
  return steps;
}

}  // namespace lab17
