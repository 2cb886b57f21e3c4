// Lab 17, part 2: ranks with unequally many batches.
//
//     rank 0   step  step  step  step          rank 0 is the last that has batches:
//     rank 1   step   .     .     .             its model is everybody's in the end
//     rank 2   step  step   .     .
//                                              .  a shadow: makes the others' calls with zeros
//
// A collective wants all ranks. A rank that just left its loop would leave the others waiting.
// The model is the driver's:
//
//     model.backward(batch)     the gradients of a batch, which is known by its number, an int
//     model.buckets()           std::vector<Bucket>: where the gradients are; the same each time
//     model.step()              the optimizer's step with what is in the buckets then
//     model.state()             std::span<float>: parameters, and running statistics, which no
//                               all-reduce keeps equal
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "hooks.hpp"
#include "labs/17-beyond/group.hpp"
#include "labs/kit/todo.hpp"

namespace lab17 {

struct JoinOptions {
  // True: gradients are divided by the number of all ranks: each batch counts the same, whether the
  // other ranks still have some or not. False: by the number of ranks that have a batch.
  bool divide_by_initial_world_size = true;
  // True: no shadows. Before the first step for which a rank has no batch, and another one has, all
  // ranks throw InputsExhausted, those with a batch too.
  bool throw_on_early_termination = false;
};

// The message is the same on all ranks, and names the step, from 0, and the ranks without a batch:
// "no batch for step 3 on ranks 1 2"
struct InputsExhausted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Who still has batches.
class Join {
 public:
  Join(Group& group, const JoinOptions& options) : group_(group), options_(options) {}

  // Task 6. The ranks tell each other who has a batch for the next step: one collective, of one
  // number a rank. Returns whether any rank has one. Throws as the options say; all the ranks, or
  // none.
  bool next(bool have) {
#ifdef SOLUTION
    const std::size_t world = std::size_t(group_.world());
    const std::vector<std::uint8_t> mine{std::uint8_t(have)};
    std::vector<std::uint8_t> all(world);
    group_.all_gather(mine, Counts(world, 1), all);
    std::string without;
    int active = 0;
    for (std::size_t r = 0; r < world; ++r) {
      if (all[r] == 0) without += " " + std::to_string(r);
      active += all[r];
    }
    if (active == 0) return false;
    if (!without.empty() && options_.throw_on_early_termination)
      throw InputsExhausted("no batch for step " + std::to_string(steps_) + " on ranks" + without);
    active_ = active;
    ++steps_;
    for (std::size_t r = 0; r < world; ++r)
      if (all[r] != 0) authority_ = int(r);
    return true;
#else
    (void)have;
    kit::todo("task 6, next");
#endif
  }

  // Task 6 as well. Of the last next() that returned true: by which number gradients are divided,
  // and the highest of the ranks that had a batch. Before the first one, and if there never is one:
  // all ranks count as having had a batch.
  [[nodiscard]] int divisor() const {
#ifdef SOLUTION
    const bool fixed = options_.divide_by_initial_world_size || steps_ == 0;
    return fixed ? group_.world() : active_;
#else
    kit::todo("task 6, divisor");
#endif
  }
  [[nodiscard]] int authority() const {
#ifdef SOLUTION
    return steps_ == 0 ? group_.world() - 1 : authority_;
#else
    kit::todo("task 6, authority");
#endif
  }

 private:
  Group& group_;
  JoinOptions options_;
#ifdef SOLUTION
  int active_ = 0, authority_ = 0;
  std::int64_t steps_ = 0;
#endif
};

// Task 7. Trains on this rank's batches, in their order: for each, model.backward(batch), the
// average of each of model.buckets() in their order, model.step(). A gradient is divided by
// divisor() before it is summed, as in task 1. While others still have batches, a rank that has
// none gives zeros for their gradients; its own model stays as it is: no backward, no step.
//
// Task 8. In the end all ranks have the model.state() of the rank that is the authority. Returns
// how many steps there were, the same number on all ranks.
//
// Collectives: one a step and one at its end for task 6, one a bucket, and one for task 8.
template <class Model>
int train_joined(Model& model, Group& group, std::span<const int> batches,
                 const JoinOptions& options) {
#ifdef SOLUTION
  Join join(group, options);
  int steps = 0;
  while (join.next(!batches.empty())) {
    const bool active = !batches.empty();
    if (active) model.backward(batches.front());
    for (const Bucket& bucket : model.buckets()) {
      std::vector<float> zeros(active ? 0 : bucket.data.size(), 0.0F);
      const std::span<float> data = active ? bucket.data : std::span<float>(zeros);
      for (float& gradient : data) gradient /= float(join.divisor());
      group.all_reduce(data);
    }
    ++steps;
    if (!active) continue;
    model.step();
    batches = batches.subspan(1);
  }
  group.broadcast(model.state(), join.authority());
  return steps;
#else
  (void)model, (void)group, (void)batches, (void)options;
  kit::todo("task 7, train_joined");
#endif
}

}  // namespace lab17
