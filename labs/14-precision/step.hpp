// Lab 14, part 3: mixed-precision training steps on N ranks.
//
//     masters, f32 --round--> weights, 16 bits --backward--> gradients of a batch, 16 bits
//        ^                                                        |
//        |                                                     += in f32, batch after batch
//        |                                                        |
//      optimizer <-- unscale, finite? <-- the average over the ranks, once a step
//
// The driver provides the model:
//
//     model.size()                              the number of weights
//     model.format()                            Format::bf16 or Format::f16
//     model.backward(weights, batch, factor)    the gradients of factor * loss(batch), as codes:
//                                               std::vector<std::uint16_t>. It throws if the batch
//                                               is broken. Batches are identified by an int.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "labs/kit/cluster/cluster.hpp"
#include "labs/kit/todo.hpp"
#include "rounding.hpp"
#include "scaler.hpp"

namespace lab14 {

// One rank's copy of the model, and the sum of the gradients of its backward passes.
template <class Model>
class Replica {
 public:
  Replica(Model& model, kit::Group& group)
      : model_(model), group_(group), grad_(model.size(), 0.0F) {}

  // Returns the gradients in f32, one per weight.
  [[nodiscard]] std::span<float> grad() { return grad_; }
  void zero_grad() { std::fill(grad_.begin(), grad_.end(), 0.0F); }

  // Task 5. Adds the gradients of factor * loss(batch) to grad(). Unless a NoSync is alive, also
  // replaces grad() with its average over the ranks, with one all-reduce.
  void backward(std::span<const std::uint16_t> weights, int batch, float factor) {
#ifdef SOLUTION
    const std::vector<std::uint16_t> codes = model_.backward(weights, batch, factor);
    for (std::size_t i = 0; i < grad_.size(); ++i) grad_[i] += decode(model_.format(), codes[i]);
    if (!synchronising_) return;
    group_.all_reduce(grad_).wait();
    for (float& g : grad_) g /= float(group_.world());
#else
    (void)weights, (void)batch, (void)factor;
    kit::todo("task 5, backward");
#endif
  }

  // Task 6. While a NoSync is alive, backward() does not communicate: gradients stay local. Its
  // destructor restores the previous state, even after an exception; NoSyncs may be nested.
  class NoSync {
   public:
    explicit NoSync(Replica& replica)
#ifdef SOLUTION
        : replica_(replica), before_(replica.synchronising_) {
      replica_.synchronising_ = false;
    }
    ~NoSync() { replica_.synchronising_ = before_; }
#else
    {
      (void)replica;
      kit::todo("task 6, NoSync");
    }
#endif
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;
#ifdef SOLUTION

   private:
    Replica& replica_;
    bool before_;
#endif
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

 private:
  Model& model_;
  kit::Group& group_;
  std::vector<float> grad_;
#ifdef SOLUTION
  bool synchronising_ = true;
#endif
};

// Given: SGD with momentum.
struct Sgd {
  float lr = 0.01F;
  float momentum = 0;
  std::vector<float> velocity = {};

  void step(std::span<float> values, std::span<const float> grad) {
    velocity.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      velocity[i] = momentum * velocity[i] + grad[i];
      values[i] -= lr * velocity[i];
    }
  }
};

template <class Model>
class Trainer {
 public:
  // masters: the same on all ranks. A step consists of `accumulate` batches. Throws
  // std::invalid_argument if accumulate is less than 1 (task 8).
  Trainer(Model& model, kit::Group& group, std::vector<float> masters, int accumulate,
          const ScalerState& scaler, const Sgd& optimizer)
      : model_(model),
        replica_(model, group),
        masters_(std::move(masters)),
        accumulate_(accumulate),
        scaler_(scaler),
        optimizer_(optimizer) {
#ifdef SOLUTION
    if (accumulate < 1) throw std::invalid_argument("accumulate must be 1 or more");
#endif
  }

  [[nodiscard]] std::span<const float> masters() const { return masters_; }
  [[nodiscard]] const GradScaler& scaler() const { return scaler_; }

  // Task 7. Makes one step from the mean loss of these n batches, at least one: each backward gets
  // the factor scale(1 / float(n)). All ranks pass the same number of batches. Returns
  // true if the step was made. If a gradient was not finite on any rank, no rank makes the step,
  // and masters and optimizer are unchanged. An exception of a backward propagates to the caller,
  // and the next step starts as if this one had never begun.
  bool step(std::span<const int> batches) {
#ifdef SOLUTION
    std::vector<std::uint16_t> weights;
    for (const float master : masters_) weights.push_back(encode(model_.format(), master));
    const float factor = scaler_.scale(1 / float(batches.size()));
    replica_.zero_grad();
    {
      const auto local = replica_.no_sync();
      for (const int batch : batches.first(batches.size() - 1))
        replica_.backward(weights, batch, factor);
    }
    replica_.backward(weights, batches.back(), factor);
    // Unscales after the average, so that all ranks check the same numbers, in which any rank's
    // infinity shows.
    const bool found = scaler_.unscale({replica_.grad()});
    if (!found) optimizer_.step(masters_, replica_.grad());
    scaler_.update();
    return !found;
#else
    (void)batches;
    kit::todo("task 7, step");
#endif
  }

  // Task 8. Makes one pass over the batches, in groups of `accumulate`; the last group may be
  // smaller. Returns the number of steps made.
  int epoch(std::span<const int> batches) {
#ifdef SOLUTION
    int made = 0;
    while (!batches.empty()) {
      const std::size_t group = std::min(batches.size(), std::size_t(accumulate_));
      made += step(batches.first(group));
      batches = batches.subspan(group);
    }
    return made;
#else
    (void)batches;
    kit::todo("task 8, epoch");
#endif
  }

 private:
  Model& model_;
  Replica<Model> replica_;
  std::vector<float> masters_;
  int accumulate_;
  GradScaler scaler_;
  Sgd optimizer_;
};

}  // namespace lab14
