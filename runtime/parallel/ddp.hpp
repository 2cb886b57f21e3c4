// DistributedDataParallel: one model, W ranks, each with its own part of the batch.
//
//   DistributedDataParallel ddp(model, group);          // verify, broadcast rank 0's state
//   for (batch of this rank) {
//     optimizer.zero_grad();
//     loss(ddp.forward(x), y).backward();               // gradients are averaged when this returns
//     optimizer.step();                                 // the same update on every rank
//   }
//
// The replicas start equal and apply equal updates, so they stay equal bit for bit. If every rank's
// loss is a mean over the same number of samples, they match one process that trains on the whole
// batch. reducer.hpp explains how gradients are exchanged.
//
// Gradient accumulation communicates only in its last pass:
//
//   { auto guard = ddp.no_sync();  loss(ddp.forward(x1), y1).backward(); }   // stays local
//   loss(ddp.forward(x2), y2).backward();                                    // averages the sum
//
// A model on a GPU should have a group on that GPU (GroupOptions::device); move the model there
// first. A group on the host also works, but slowly.
//
// For unequal numbers of inputs use join(). The constructor fixes the set of trained parameters. If
// a parameter is frozen or unfrozen later, or the module's parameters or buffers are no longer the
// same tensors, the next forward() with grad mode on throws UsageError.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/nn/module.hpp"
#include "runtime/parallel/ddp_logging.hpp"
#include "runtime/parallel/join.hpp"
#include "runtime/parallel/reducer.hpp"

namespace ringsmith {

// When the all-reduce of a full bucket starts. on: as soon as the buckets before it have started,
// while backward continues, on the communication thread or the group's stream. off: when backward
// has ended, on the calling thread. Buckets, order and bits are the same. automatic: on if the
// group is on a GPU or a core is free for the communication thread, which must not share a core
// with backward. alternate: alternates between off and on, starting with off, so that one run
// measures both under the same system noise.
enum class Overlap : std::uint8_t { automatic, on, off, alternate };
// Parses "auto", "on", "off" or "alternate"; throws UsageError for other names.
Overlap parse_overlap(std::string_view name);
// True if communication is to overlap with computation in a group of this kind.
bool overlaps(Overlap choice, const comm::ProcessGroup& group);

struct DdpOptions {
  double bucket_cap_mb = kBucketMb;         // MiB of gradients at which a bucket is closed
  double first_bucket_mb = kFirstBucketMb;  // small, so that communication starts early
  bool find_unused_parameters = false;      // see ReducerOptions
  bool static_graph = false;                // see ReducerOptions
  // At the start of each synchronising forward with grad mode on, rank 0's buffers (running
  // statistics) replace the other ranks'. A forward under NoGradGuard never communicates, nor does
  // a forward under no_sync outside join(), so a single rank may evaluate the model.
  bool broadcast_buffers = true;
  // Verifies that the ranks hold the same model, and broadcasts rank 0's state. If false, the
  // caller must ensure that model and state are the same on all ranks.
  bool init_sync = true;
  Overlap overlap = Overlap::automatic;
  comm::ReduceOp op = comm::ReduceOp::avg;        // or sum, if the loss is a sum over samples
  std::optional<comm::Algorithm> algorithm = {};  // of the group's later collectives
  // Names of parameters and buffers that differ per rank: they are neither broadcast nor reduced.
  // The names must be the same on every rank; sizes may differ. Throws UsageError for an unknown
  // name.
  std::vector<std::string> ignored = {};
};

inline void collect_tensors(const Tensor& t, std::vector<Tensor>& out) { out.push_back(t); }
inline void collect_tensors(const std::vector<Tensor>& ts, std::vector<Tensor>& out) {
  out.insert(out.end(), ts.begin(), ts.end());
}
template <class A, class B>
void collect_tensors(const std::pair<A, B>& pair, std::vector<Tensor>& out) {
  collect_tensors(pair.first, out);
  collect_tensors(pair.second, out);
}
template <class... Ts>
void collect_tensors(const std::tuple<Ts...>& tuple, std::vector<Tensor>& out) {
  std::apply([&](const Ts&... each) { (collect_tensors(each, out), ...); }, tuple);
}

class DistributedDataParallel {
 public:
  // Collective. Parameters that do not require a gradient are broadcast, then left unchanged. With
  // init_sync, throws the same UsageError on every rank if the ranks' models or options differ.
  // Also throws UsageError if a tensor or a name is listed twice (a module lists a shared tensor
  // only once), no parameter is trained, or an option is out of range. The module must outlive this
  // object; the tensors are shared.
  DistributedDataParallel(Module& module, std::shared_ptr<comm::ProcessGroup> group,
                          const DdpOptions& options = {});
  DistributedDataParallel(const NamedTensors& parameters, const NamedTensors& buffers,
                          std::shared_ptr<comm::ProcessGroup> group,
                          const DdpOptions& options = {});

  // Throws UsageError if this object was constructed without a module, or if grad mode is on and
  // the module's parameters or buffers have changed since construction.
  Tensor forward(const Tensor& x);
  // body() returns the tensors from which the loss is computed.
  template <std::invocable Body>
  auto forward(Body&& body) {
    begin_forward();
    auto result = std::forward<Body>(body)();
    std::vector<Tensor> outputs;
    collect_tensors(result, outputs);
    end_forward(outputs);
    return result;
  }

  class NoSync {
   public:
    explicit NoSync(Reducer& reducer) : reducer_(reducer), before_(reducer.synchronising()) {
      reducer_.set_synchronising(false);
    }
    ~NoSync() { reducer_.set_synchronising(before_); }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    Reducer& reducer_;
    bool before_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*reducer_); }

  // Runs body, a loop of training steps, on ranks that may run different numbers of steps
  // (join.hpp). Collective. Throws UsageError unless each synchronising forward is followed by its
  // backward before the next forward and before the end of body. Throws InputsExhausted if
  // throw_on_early_termination is set and a rank has run out of inputs.
  template <std::invocable Body>
  void join(Body&& body, const JoinOptions& options = {}) {
    const JoinScope scope(*this, options);
    std::forward<Body>(body)();
    shadow_others();
  }

  // Replaces the all-reduce of each bucket (comm_hooks.hpp). Throws UsageError after the first
  // synchronising forward, if called twice, or if the hook is empty.
  void register_comm_hook(CommHook hook) { reducer_->register_comm_hook(std::move(hook)); }
  template <class State, class Hook>
  void register_comm_hook(State state, Hook hook, std::string name = "of the program") {
    register_comm_hook({std::move(name), [state = std::move(state), hook = std::move(hook)](
                                             const GradBucket& b) { return hook(state, b); }});
  }

  // Collective. Rank 0's buffers (in join(): those of rank Join::authority()) replace the other
  // ranks' buffers.
  void synchronise_buffers();

  // For checkpoints: the order of gradients in the buckets, as parameter indices
  // (Reducer::ready_order()).
  [[nodiscard]] std::vector<int> ready_order() const { return reducer_->ready_order(); }
  void rebuild_in(std::vector<int> order) { reducer_->rebuild_in(std::move(order)); }

  [[nodiscard]] comm::ProcessGroup& group() const { return *group_; }
  [[nodiscard]] const Reducer& reducer() const { return *reducer_; }
  [[nodiscard]] const ReducerStatistics& statistics() const { return reducer_->statistics(); }
  [[nodiscard]] LoggingData logging_data() const;

 private:
  class JoinScope {
   public:
    JoinScope(DistributedDataParallel& ddp, const JoinOptions& options) : ddp_(ddp) {
      require(!ddp_.join_, "join() inside of join(): leave out the inner one");
      ddp_.join_.emplace(ddp_.group_, options);
      ddp_.joined_ = true;
    }
    ~JoinScope() {
      ddp_.join_.reset();
      ddp_.reducer_->set_divisor(ddp_.group_->size());
    }
    JoinScope(const JoinScope&) = delete;
    JoinScope& operator=(const JoinScope&) = delete;

   private:
    DistributedDataParallel& ddp_;
  };
  void shadow_others();
  void require_unchanged() const;
  void begin_forward();
  void end_forward(const std::vector<Tensor>& outputs);

  Module* module_ = nullptr;
  std::shared_ptr<comm::ProcessGroup> group_;
  DdpOptions options_;
  NamedTensors parameters_, named_buffers_;  // at construction, including ignored ones
  std::vector<std::string> names_;           // of the parameters that require gradients
  std::vector<Tensor> buffers_;
  std::vector<Tensor> state_;  // everything that is broadcast: parameters and buffers
  std::unique_ptr<Reducer> reducer_;
  std::optional<Join> join_;  // set during join()
  bool joined_ = false;
};

}  // namespace ringsmith
