// Lab 17, part 3: an optimizer whose state is divided among the ranks (ZeRO, stage 1).
//
//     7 elements, 3 ranks           rank 0      rank 1      rank 2
//
//     parameters, gradients         abcdefg     abcdefg     abcdefg
//     reduce-scatter: average of    abc         def         g
//     m, v, update of               abc         def         g
//     all-gather: parameters        abcdefg     abcdefg     abcdefg
//
// An all-reduce is a reduce-scatter plus an all-gather, so the traffic is the same. AdamW's two
// numbers per element are stored once in total, not once per rank.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "labs/17-beyond/group.hpp"
#include "labs/kit/todo.hpp"

namespace lab17 {

// Elements [first, first + length) of the concatenation of all trainable parameters.
struct Shard {
  std::size_t first = 0;
  std::size_t length = 0;
};

// Task 9. Returns the shard of `rank` among `count` elements. Each rank has count / world of them,
// rounded up, as long as elements remain; the last ranks have fewer, or none, as in torch.chunk:
// 7 on 3 ranks are 3, 3, 1, and 4 on 3 ranks are 2, 2, 0. An empty shard begins at `count`.
inline Shard shard_of(std::size_t count, int world, int rank) {
#ifdef SOLUTION
  const std::size_t ranks = std::size_t(world), each = (count + ranks - 1) / ranks;
  const std::size_t first = std::min(count, each * std::size_t(rank));
  return {first, std::min(each, count - first)};
#else
  (void)count, (void)world, (void)rank;
  kit::todo("task 9, shard_of");
#endif
}

struct Parameter {
  std::span<float> value;
  std::span<const float> grad;  // this rank's own gradient, not averaged
  bool trainable = true;        // false: frozen; do not read grad or write value
};

struct AdamW {
  float lr = 1e-3F, beta1 = 0.9F, beta2 = 0.999F, eps = 1e-8F, weight_decay = 0.01F;
};
// Given. Updates one element; `step` is 1 in the first update. Do not rewrite it: the bits matter.
inline void adamw(const AdamW& o, std::int64_t step, float grad, float& value, float& m, float& v) {
  m = o.beta1 * m + (1 - o.beta1) * grad;
  v = o.beta2 * v + (1 - o.beta2) * (grad * grad);
  const auto correct1 = float(1 - std::pow(double(o.beta1), double(step)));
  const auto correct2 = float(1 - std::pow(double(o.beta2), double(step)));
  const float kept = value - o.lr * o.weight_decay * value;
  value = kept - o.lr * (m / correct1) / (std::sqrt(v / correct2) + o.eps);
}

// The complete state, as a single unsharded optimizer would have it.
struct FullState {
  std::int64_t steps = 0;
  std::vector<float> m, v;  // one number per element of the trainable parameters, in order
};

// Each step: reduce_gradients(), then optionally clip(), then step(). Between steps the object
// holds at most three floats for each element of its own shard, and some bytes for each parameter.
class ShardedAdamW {
 public:
  // All ranks pass the same parameters in the same order; their memory outlives this object.
  ShardedAdamW(Group& group, std::vector<Parameter> parameters, const AdamW& options)
      : group_(group), parameters_(std::move(parameters)), options_(options) {
#ifdef SOLUTION
    for (const Parameter& p : parameters_) count_ += p.trainable ? p.value.size() : 0;
    for (int r = 0; r < group.world(); ++r)
      counts_.push_back(shard_of(count_, group.world(), r).length);
    shard_ = shard_of(count_, group.world(), group.rank());
    grad_.resize(shard_.length);
    m_.resize(shard_.length);
    v_.resize(shard_.length);
#endif
  }

  // Task 10. Averages the gradients of this rank's shard over the ranks: divides by the number of
  // ranks, then sums. One collective: a reduce-scatter. Does not change the parameters' grad.
  void reduce_gradients() {
#ifdef SOLUTION
    std::vector<float> all;
    all.reserve(count_);
    for (const Parameter& p : parameters_)
      if (p.trainable)
        for (const float g : p.grad) all.push_back(g / float(group_.world()));
    group_.reduce_scatter(all, counts_, grad_);
    reduced_ = true;
#else
    kit::todo("task 10, reduce_gradients");
#endif
  }

  // Task 11. Returns the norm of all averaged gradients: the root of the sum of their squares, each
  // element of all shards once, computed in double. Multiplies each gradient by float(max_norm /
  // (norm + 1e-6)) unless that quotient is above 1. If the norm is NaN, all gradients become NaN,
  // on all ranks. One collective, of one number. Throws std::logic_error, and sends nothing, if
  // there was no reduce_gradients() since the last step.
  double clip(double max_norm) {
#ifdef SOLUTION
    if (!reduced_) throw std::logic_error("clip: no reduce_gradients() since the last step");
    std::vector<double> squares{0};
    for (const float g : grad_) squares[0] += double(g) * double(g);
    group_.all_reduce(squares);
    const double norm = std::sqrt(squares[0]), factor = max_norm / (norm + 1e-6);
    if (!(factor > 1))  // NaN goes this way
      for (float& g : grad_) g *= float(factor);
    return norm;
#else
    (void)max_norm;
    kit::todo("task 11, clip");
#endif
  }

  // Also task 10. Calls adamw() for the elements of this rank's shard, and gathers the new values
  // of all shards on every rank. One collective: an all-gather. The result is bitwise equal to a
  // single optimizer that updates every element. Throws std::logic_error, and sends nothing, if
  // there was no reduce_gradients() since the last step.
  void step() {
#ifdef SOLUTION
    if (!reduced_) throw std::logic_error("step: no reduce_gradients() since the last one");
    reduced_ = false;
    ++steps_;
    std::vector<float> all;
    all.reserve(count_);
    for (const Parameter& p : parameters_)
      if (p.trainable) all.insert(all.end(), p.value.begin(), p.value.end());
    const std::span<float> mine = std::span(all).subspan(shard_.first, shard_.length);
    for (std::size_t i = 0; i < mine.size(); ++i)
      adamw(options_, steps_, grad_[i], mine[i], m_[i], v_[i]);
    group_.all_gather(mine, counts_, all);
    auto next = all.begin();
    for (const Parameter& p : parameters_)
      if (p.trainable)
        for (float& value : p.value) value = *next++;
#else
    kit::todo("task 10, step");
#endif
  }

  // Task 12. Returns the state of all ranks, on every rank. All ranks must call it.
  FullState state() {
#ifdef SOLUTION
    FullState full{steps_, std::vector<float>(count_), std::vector<float>(count_)};
    group_.all_gather(m_, counts_, full.m);
    group_.all_gather(v_, counts_, full.v);
    return full;
#else
    kit::todo("task 12, state");
#endif
  }
  // Also task 12. Continues like the optimizers that saved this state, on any number of ranks; all
  // ranks pass the same state. Throws std::invalid_argument, and changes nothing, if steps is
  // negative or the number of elements does not match the parameters. Sends nothing, and does not
  // end a step: a gradient that was reduced before it still counts at the next step().
  void load(const FullState& full) {
#ifdef SOLUTION
    if (full.steps < 0) throw std::invalid_argument("load: negative steps");
    if (full.m.size() != count_ || full.v.size() != count_)
      throw std::invalid_argument("load: a state of " + std::to_string(full.m.size()) + " and " +
                                  std::to_string(full.v.size()) + " elements, not of " +
                                  std::to_string(count_));
    steps_ = full.steps;
    std::copy_n(full.m.begin() + std::ptrdiff_t(shard_.first), shard_.length, m_.begin());
    std::copy_n(full.v.begin() + std::ptrdiff_t(shard_.first), shard_.length, v_.begin());
#else
    (void)full;
    kit::todo("task 12, load");
#endif
  }

 private:
  Group& group_;
  std::vector<Parameter> parameters_;
  AdamW options_;
#ifdef SOLUTION
  std::size_t count_ = 0;  // elements of all trainable parameters
  Counts counts_;          // lengths of all shards
  Shard shard_;            // this rank's
  std::vector<float> grad_, m_, v_;
  std::int64_t steps_ = 0;
  bool reduced_ = false;
#endif
};

}  // namespace lab17
