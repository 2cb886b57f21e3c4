// The reducer: averages gradients over the ranks while backward is still computing them.
//
//   backward      g5 g4 g3 | g2 g1 | g0 |
//   bucket 0      [======] --- all-reduce ---->
//   bucket 1               [===] ------- all-reduce ------>
//   bucket 2                     [==]         ---- all-reduce -->|
//                                       ^ compute ends           ^ backward() returns
//                                       |-- exposed communication |
//
// - The buckets hold the gradients: each parameter's .grad is a view into communication memory,
//   which backward writes and the peers reduce from. There is no second copy of the gradients.
// - A bucket's all-reduce starts once its last gradient has arrived, and strictly in bucket order,
//   whatever the order of the gradients on this rank: all ranks call the same collectives in the
//   same order. Backward ends with the last bucket, so the calling thread reduces that one itself.
// - When the graph is done, buckets that still lack a gradient are reduced with the parameter's old
//   .grad or zeros in its place, and the ranks exchange which parameters had gradients
//   (agreement.hpp). So no rank waits for a rank that took another path through the model, and all
//   raise the same error in the same step.
// - The first backward reveals the order in which gradients arrive (with a static graph, the
//   second). The next synchronising forward rebuilds the buckets in rank 0's order on every rank;
//   with find_unused_parameters, buckets are never rebuilt.
// - A communication hook (comm_hooks.hpp) may replace the all-reduce. When an optimizer skips its
//   step (Optimizer::skip), the hook is told, and that backward does not count towards the rebuild.
//   One of several optimizers is enough, because a bucket may hold gradients of all of them.
//
// On a GPU the same holds for streams: a bucket's all-reduce waits for the streams that produce its
// gradients, the caller's stream waits for the all-reduce, and backward() returns while both are
// still running (BucketMemory in bucket.hpp; with a group on the host it blocks).
//
// PyTorch's semantics, with three differences that report errors earlier: a missing gradient is
// reported in its own step with names and ranks; each synchronised backward needs a synchronising
// forward since the last one; and a gradient that would silently stay local is an error outside of
// no_sync.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/autograd/node.hpp"
#include "runtime/parallel/agreement.hpp"
#include "runtime/parallel/bucket.hpp"
#include "runtime/parallel/comm_hooks.hpp"
#include "runtime/parallel/static_graph.hpp"

namespace ringsmith {

// Cost of one synchronised backward, in seconds since its first gradient, measured by the host's
// clock, or by stream events on a GPU.
//
//   0 ........ compute_end ........ finished
//        |first launch                |          communication = finished - first launch
//                   |-----------------|          exposed: compute was over, and backward() waited
struct BucketTimes {
  // When the bucket's last gradient had arrived and all earlier buckets were launched, or when the
  // calling thread started to reduce it.
  double launched = 0;
  // When backward() saw the reduction complete; not before compute_end.
  double collected = 0;
};

struct ReducerStatistics {
  std::uint64_t step = 0;  // from 1; 0 before the first backward
  double compute_end = 0;
  double finished = 0;
  std::vector<BucketTimes> buckets;  // sizes and members: Reducer::plan()

  [[nodiscard]] double communication() const {
    return buckets.empty() ? 0 : finished - buckets.front().launched;
  }
  [[nodiscard]] double exposed() const { return finished - compute_end; }
};

// Seconds since restart().
class ReducerClock {
 public:
  explicit ReducerClock(Device device) : device_(device) {}
  void restart();
  // Records the current time, on a GPU the time at which the current stream gets here, in
  // `seconds`, which must live until settle().
  void mark(double& seconds);
  void settle();  // writes pending times; waits for the device

 private:
  Device device_;
  std::chrono::steady_clock::time_point start_{};
  Event begin_;
  std::vector<std::pair<double*, Event>> open_;
};

struct ReducerOptions {
  BucketCaps caps;
  // Parameters without a gradient are allowed: a rank that lacks one contributes zeros, or its
  // .grad of earlier passes; if all ranks lack it, .grad is unchanged. Buckets are never rebuilt.
  bool find_unused_parameters = false;
  // Parameters without a gradient are allowed if they are the same in every backward
  // (static_graph.hpp). find_unused_parameters is then ignored, and buckets are rebuilt.
  bool static_graph = false;
  bool overlap = true;                      // see Overlap in ddp.hpp
  bool alternate = false;                   // overlap in every second backward only
  comm::ReduceOp op = comm::ReduceOp::avg;  // avg or sum
};

class Reducer {
 public:
  // The parameters must be the same, in the same order, on every rank; names are used in messages.
  // Throws UsageError if there are none, if they are on several devices, or if options.op is
  // neither avg nor sum.
  Reducer(std::vector<std::string> names, std::vector<Tensor> parameters,
          std::shared_ptr<comm::ProcessGroup> group, ReducerOptions options = {});
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // False: the gradients of later forwards stay local (no_sync).
  void set_synchronising(bool on) { synchronising_ = on; }
  [[nodiscard]] bool synchronising() const { return synchronising_; }

  // Replaces the all-reduce of the buckets. UsageError after the first synchronising forward, if
  // called twice, or if the hook is empty.
  void register_comm_hook(CommHook hook);
  [[nodiscard]] const std::string& comm_hook() const { return hook_.name; }  // empty: none

  // ---- a rank that has run out of inputs (join.hpp) ----
  // Takes part in the collectives of a forward and its backward with zeros; this rank's gradients
  // are dropped. The other ranks' forward must be a synchronising one.
  void shadow_forward();
  void shadow_backward();
  // From the next backward on, avg divides by this number instead of the group's size.
  void set_divisor(int ranks) { divisor_ = ranks; }

  // Called around a forward with grad mode on. If it is a synchronising one, begin_forward()
  // rebuilds the buckets when due (collective), and end_forward() arms the reduction in the next
  // backward. Outputs are needed only with find_unused_parameters.
  void begin_forward();
  void end_forward(const std::vector<Tensor>& outputs);

  [[nodiscard]] const ReducerOptions& options() const { return options_; }
  [[nodiscard]] const std::vector<Tensor>& parameters() const { return parameters_; }
  [[nodiscard]] const std::vector<BucketItem>& items() const { return items_; }  // by parameter
  [[nodiscard]] const BucketPlan& plan() const { return plan_; }
  // Of the last synchronised backward: the parameters in the order in which they became ready, and
  // whether this rank had a gradient for a parameter.
  [[nodiscard]] const std::vector<int>& last_ready_order() const { return last_ready_order_; }
  [[nodiscard]] bool used(int parameter) const { return usage_.used_on(group_->rank(), parameter); }
  [[nodiscard]] bool rebuilt() const { return rebuilt_; }
  // The parameter order of the rebuilt buckets; before the rebuild, this rank's ready order (the
  // rebuild uses rank 0's). Empty before the order is known, or if buckets are never rebuilt. A run
  // that continues from a checkpoint and passes this order to rebuild_in() has the same buckets,
  // and so the same bits, as an uninterrupted run. rebuild_in() throws UsageError unless every
  // parameter is named once.
  [[nodiscard]] std::vector<int> ready_order() const;
  void rebuild_in(std::vector<int> order);  // the same on every rank, before the first forward
  // True after a synchronising forward, until its backward begins.
  [[nodiscard]] bool awaits_backward() const { return phase_ == Phase::armed; }
  [[nodiscard]] Bytes communication_memory() const { return memory_.size(); }
  [[nodiscard]] std::size_t launched() const { return next_; }  // buckets of this backward
  [[nodiscard]] bool all_launched_are_in() const;
  // Of the last synchronised backward. On a GPU this blocks until that backward is complete.
  [[nodiscard]] const ReducerStatistics& statistics() const {
    clock_.settle();
    return statistics_;
  }

 private:
  enum class Phase : std::uint8_t { idle, armed, reducing };

  void on_gradient(int parameter);
  void on_skip();
  void start_reducing();
  [[nodiscard]] bool overlaps_now() const {
    return options_.overlap && !(options_.alternate && step_ % 2 == 0);
  }
  void mark_ready(int parameter);
  void launch_ready_buckets();
  [[nodiscard]] comm::WorkPtr reduce_async(std::size_t bucket);
  [[nodiscard]] comm::ReduceOp prepare(std::size_t bucket) const;
  [[nodiscard]] Tensor buffer_of(std::size_t bucket) const;
  [[nodiscard]] GradBucket grad_bucket(std::size_t bucket) const;
  // On a single rank, average and sum are no-ops, but a hook may do anything.
  [[nodiscard]] bool exchanges() const { return group_->size() > 1 || hook_.call; }
  void finish_backward();
  [[nodiscard]] bool allows_unused() const {
    return options_.find_unused_parameters || options_.static_graph;
  }
  void settle_unused();
  void provide_missing(int parameter);
  void adopt_gradient(int parameter);
  [[nodiscard]] bool rebuild_is_due() const;
  void rebuild_if_due();
  void install(BucketPlan plan);
  [[nodiscard]] const std::string& name_of_parameter(int p) const {
    return names_[static_cast<std::size_t>(p)];
  }

  std::vector<std::string> names_;
  std::vector<Tensor> parameters_;
  std::shared_ptr<comm::ProcessGroup> group_;
  ReducerOptions options_;
  std::vector<BucketItem> items_;
  std::vector<HookHandle> hooks_;  // two per parameter
  CommHook hook_;
  int divisor_;  // of avg

  Device device_;  // of the parameters
  BucketMemory memory_;
  std::vector<Stream> streams_;  // that produce this backward's gradients
  BucketPlan plan_;
  std::vector<Tensor> views_;  // by parameter: its slot
  bool rebuilt_ = false;

  bool synchronising_ = true;
  bool local_forward_ = false;  // the last forward was made under no_sync
  Phase phase_ = Phase::idle;
  std::uint64_t step_ = 0;             // synchronised backward passes so far
  std::uint64_t skipped_ = 0;          // passes whose step was skipped
  bool may_skip_ = false;              // the last pass may still be counted as skipped
  std::uint64_t forwards_ = 0;         // synchronising forwards so far
  UsageMap usage_;                     // gradients since the last synchronisation
  std::optional<StaticGraph> graph_;   // with static_graph
  std::vector<bool> unreachable_;      // from the outputs, if find_unused_parameters
  std::vector<bool> ready_;            // by parameter, in this backward
  std::vector<int> last_ready_order_;  // of the last backward
  std::vector<int> rebuilt_order_;     // of the buckets, if rebuilt
  std::vector<std::size_t> pending_;   // by bucket: gradients not arrived yet
  std::vector<comm::WorkPtr> works_;   // by bucket, if launched
  std::size_t next_ = 0;               // first bucket not yet launched
  std::string fault_;                  // thrown on every rank at the end of this backward
  std::vector<Tensor> kept_;           // by parameter: old .grad, if possibly unused by all
  ReducerStatistics statistics_;
  mutable ReducerClock clock_;  // writes into statistics_
};

}  // namespace ringsmith
