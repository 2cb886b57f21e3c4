// The reducer: averages gradients over the ranks while backward is still computing them.
//
//   backward      g5 g4 g3 | g2 g1 | g0 |
//   bucket 0      [======] --- all-reduce ---->
//   bucket 1               [===] ------- all-reduce ------>
//   bucket 2                     [==]         ---- all-reduce -->|
//                                       ^ compute ends           ^ backward() returns
//                                       |-- exposed communication |
//
// - A bucket's all-reduce starts once its last gradient has arrived, but strictly in bucket order,
//   whatever the order of the gradients on this rank, so that all ranks call the same collectives
//   in the same order. The calling thread reduces the last bucket itself.
// - When the graph is done, buckets that still lack a gradient are launched, too, so that no rank
//   waits for a rank that took another path through the model.
//
// reducer.cpp implements these two rules. It uses:
//
//   gradient_buckets.hpp     the buckets hold the gradients: .grad is a view into communication
//                            memory, which backward writes and the peers reduce from
//   missing_gradients.hpp    gradients that do not arrive, and the verdict of all ranks on them
//   bucket_rebuild.hpp       the buckets of later steps, in the order in which gradients arrive
//   reducer_statistics.hpp   the times of the picture above
//   comm_hooks.hpp           functions that replace the all-reduce
//
// When any optimizer skips its step (Optimizer::skip), the communication hook is notified, and that
// backward does not count towards the rebuild.
//
// On a GPU, streams follow the same rules: a bucket's all-reduce waits for the streams that produce
// its gradients, and the caller's stream waits for the all-reduce. backward() returns while both
// streams still run, except with a group on the host (BucketMemory in gradient_buckets.hpp).
//
// The semantics are PyTorch's, with three differences that report errors earlier: a missing
// gradient is reported in its own step with names and ranks; each synchronised backward needs a
// synchronising forward since the last one; and outside no_sync, a gradient that would stay local
// is an error.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/autograd/node.hpp"
#include "runtime/parallel/bucket_rebuild.hpp"
#include "runtime/parallel/comm_hooks.hpp"
#include "runtime/parallel/gradient_buckets.hpp"
#include "runtime/parallel/missing_gradients.hpp"
#include "runtime/parallel/reducer_statistics.hpp"

namespace ringsmith {

struct ReducerOptions {
  BucketCaps caps;
  // Parameters may lack a gradient: a rank without one contributes zeros, or its .grad of earlier
  // passes; if all ranks lack the gradient, .grad is unchanged. Buckets are never rebuilt.
  bool find_unused_parameters = false;
  // Parameters may lack a gradient if the same parameters lack it in every backward
  // (static_graph.hpp). If set, find_unused_parameters is ignored, and buckets are rebuilt.
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

  // False: the gradients of later forward passes stay local (no_sync).
  void set_synchronising(bool on) { synchronising_ = on; }
  [[nodiscard]] bool synchronising() const { return synchronising_; }

  // Throws UsageError after the first synchronising forward, if called twice, or if the hook is
  // empty.
  void register_comm_hook(CommHook hook);
  [[nodiscard]] const std::string& comm_hook() const { return hook_.name; }  // empty: none

  // Called around a forward with grad mode on. In a synchronising forward, begin_forward() rebuilds
  // the buckets when due (collective), and end_forward() arms the reduction in the next backward.
  // Outputs are needed only with find_unused_parameters.
  void begin_forward();
  void end_forward(const std::vector<Tensor>& outputs);

  // ---- a rank that has run out of inputs (join.hpp) ----
  // Join the collectives of a forward and its backward with zeros; this rank's gradients are
  // dropped. The other ranks' forward must be a synchronising one.
  void shadow_forward() { rebuild_.run_if_due(buckets_); }
  void shadow_backward();
  // From now on, avg divides by this number.
  void set_divisor(int ranks) { buckets_.set_divisor(ranks); }

  [[nodiscard]] const ReducerOptions& options() const { return options_; }
  [[nodiscard]] const std::vector<Tensor>& parameters() const { return buckets_.parameters(); }
  [[nodiscard]] const std::vector<BucketItem>& items() const { return buckets_.items(); }
  [[nodiscard]] const BucketPlan& plan() const { return buckets_.plan(); }
  [[nodiscard]] Bytes communication_memory() const { return buckets_.memory().size(); }
  // These describe the last synchronised backward: the parameters in the order in which they became
  // ready, and whether this rank had a gradient for a parameter.
  [[nodiscard]] const std::vector<int>& last_ready_order() const { return rebuild_.last_order(); }
  [[nodiscard]] bool used(int parameter) const { return missing_.used(parameter); }
  [[nodiscard]] bool rebuilt() const { return rebuild_.done(); }
  // The parameter order of the rebuilt buckets; before the rebuild, this rank's ready order (the
  // rebuild uses rank 0's). Empty before the order is known, or if buckets are never rebuilt. A run
  // that continues from a checkpoint and passes this order to rebuild_in() gets the same buckets,
  // and so the same bits, as an uninterrupted run.
  [[nodiscard]] std::vector<int> ready_order() const { return rebuild_.order(); }
  // Rebuilds the buckets in this order, which must be the same on every rank. Call it before the
  // first forward. Throws UsageError unless each parameter is named once.
  void rebuild_in(std::vector<int> order) { rebuild_.run(buckets_, std::move(order)); }
  // True after a synchronising forward, until its backward begins.
  [[nodiscard]] bool awaits_backward() const { return phase_ == Phase::armed; }
  [[nodiscard]] std::size_t launched() const { return next_; }  // buckets of this backward
  [[nodiscard]] bool all_launched_are_in() const;
  // The times of the last synchronised backward. On a GPU this blocks until that backward is
  // complete.
  [[nodiscard]] const ReducerStatistics& statistics() const { return clock_.statistics(); }

 private:
  enum class Phase : std::uint8_t { idle, armed, reducing };

  void on_gradient(int parameter);
  void on_skip();
  void begin_backward();
  void mark_ready(int parameter);
  void launch_ready_buckets();
  [[nodiscard]] bool overlaps_now() const;
  [[nodiscard]] comm::WorkPtr reduce_async(std::size_t bucket);
  // On a single rank, average and sum are no-ops, but a hook may do anything.
  [[nodiscard]] bool exchanges() const { return buckets_.group()->size() > 1 || hook_.call; }
  void finish_backward();

  ReducerOptions options_;
  GradientBuckets buckets_;
  MissingGradients missing_;
  BucketRebuild rebuild_;
  mutable ReducerClock clock_;  // statistics() waits for a GPU's times
  CommHook hook_;
  std::vector<HookHandle> handles_;  // of the hooks on the parameters, two for each

  bool synchronising_ = true;
  bool local_forward_ = false;  // the last forward was made under no_sync
  std::uint64_t forwards_ = 0;  // synchronising forward passes so far
  Phase phase_ = Phase::idle;
  // This backward:
  std::vector<bool> ready_;           // by parameter
  std::vector<std::size_t> pending_;  // by bucket: gradients that have not arrived yet
  std::size_t next_ = 0;              // first bucket not yet launched
  std::vector<comm::WorkPtr> works_;  // by bucket, if launched
};

}  // namespace ringsmith
