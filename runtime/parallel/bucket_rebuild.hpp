// The rebuild of the buckets in the order in which gradients arrive.
//
//   backward 1   one bucket per dtype; the gradients arrive in the order  g5 g4 g3 g2 g1 g0
//   forward 2    rank 0 broadcasts its order; every rank installs         [g5 g4 g3] [g2 g1] [g0]
//   backward 2   each bucket is full as early as possible
//
// A backward whose optimizer step is skipped does not count. With a static graph, the second
// backward determines the order, because the first handles all parameters only at its end. With
// find_unused_parameters buckets are never rebuilt, as in PyTorch.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/parallel/gradient_buckets.hpp"

namespace ringsmith {

class BucketRebuild {
 public:
  // needs: number of backward passes that must count before the rebuild; 0: never rebuilt.
  BucketRebuild(const BucketCaps& caps, int needs) : caps_(caps), needs_(needs) {}

  // ---- in each synchronised backward ----
  void begin_backward() { last_order_.clear(); }
  void arrived(int parameter) { last_order_.push_back(parameter); }
  void backward_done() {
    ++passes_;
    may_skip_ = true;
  }
  // Records that the optimizer skips its step for the last backward. Returns true only in the first
  // call after a backward.
  bool skip();

  [[nodiscard]] const std::vector<int>& last_order() const { return last_order_; }
  // The parameter order of the rebuilt buckets or, before the rebuild, this rank's ready order.
  // Empty if the order is not known yet.
  [[nodiscard]] std::vector<int> order() const;
  [[nodiscard]] bool done() const { return !rebuilt_order_.empty(); }

  void run_if_due(GradientBuckets& buckets);  // collective
  // The order must be the same on every rank. Throws UsageError unless it names every parameter
  // once.
  void run(GradientBuckets& buckets, std::vector<int> order);

 private:
  [[nodiscard]] bool due() const { return !done() && needs_ > 0 && passes_ >= needs_; }

  BucketCaps caps_;
  std::int64_t needs_;
  std::int64_t passes_ = 0;         // backward passes that count
  bool may_skip_ = false;           // the last pass may still turn out not to count
  std::vector<int> last_order_;     // of the last backward
  std::vector<int> rebuilt_order_;  // of the buckets, if rebuilt
};

}  // namespace ringsmith
