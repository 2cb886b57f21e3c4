// Lab 17, part 2: ranks with unequal numbers of batches.
//
//     rank 0   step  step  step  step          rank 0 is the last rank with batches:
//     rank 1   step   .     .     .             all ranks end with its model
//     rank 2   step  step   .     .
//                                              .  a shadow: makes the others' calls with zeros
//
// A collective needs all ranks. If a rank just left its loop, the others would wait forever.
// The driver provides the model:
//
//     model.backward(batch)     computes the gradients of a batch, identified by an int
//     model.buckets()           std::vector<Bucket> that hold the gradients; always the same ones
//     model.step()              the optimizer's step with the current content of the buckets
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
  // True: divides gradients by the total number of ranks, so each batch has the same weight,
  // whether or not other ranks still have batches. False: by the number of ranks with a batch.
  bool divide_by_initial_world_size = true;
  // True: no shadows. Before the first step for which some ranks have a batch and others have none,
  // all ranks throw InputsExhausted, including those that have a batch.
  bool throw_on_early_termination = false;
};

// The message is the same on all ranks, and names the step, counted from 0, and the ranks without a
// batch: "no batch for step 3 on ranks 1 2". The step does not begin, so the next next() asks for
// the same step again.
struct InputsExhausted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Join {
 public:
  Join(Group& group, const JoinOptions& options) : group_(group), options_(options) {}

  // Task 6. The ranks tell each other whether they have a batch for the next step: one collective
  // with one number per rank. Returns whether any rank has a batch. Throws as the options say, on
  // all ranks or on none.
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

  // Also task 6. Return the number by which gradients are divided, and the highest rank that had a
  // batch, both for the last next() that returned true. Before the first such call, both return
  // their values as if all ranks had a batch.
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

// Task 7. Trains on this rank's batches, in order. For each: model.backward(batch), the average of
// each of model.buckets() in order, model.step(). Gradients are divided by divisor() before they
// are summed, as in task 1. While other ranks still have batches, a rank without one contributes
// zeros, and leaves its own model unchanged: no backward, no step, no change to its buckets.
//
// Task 8. At the end all ranks receive model.state() of the rank that is the authority. Returns
// the number of steps, which is the same on all ranks.
//
// Collectives: for task 6 one per step and one at the end; one per bucket and step; one for task 8.
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
