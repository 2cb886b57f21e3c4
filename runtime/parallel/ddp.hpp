// DistributedDataParallel: one model, W ranks, each with its own part of the batch.
//
//   DistributedDataParallel ddp(model, group);          // verify, broadcast rank 0's state
//   for (batch of this rank) {
//     optimizer.zero_grad();
//     loss(ddp.forward(x), y).backward();               // gradients are averaged when this returns
//     optimizer.step();                                 // the same update on every rank
//   }
//
// Equal start, equal gradients, equal updates: the replicas stay equal bit for bit, and when every
// rank's loss is a mean over equally many samples, they are what one process with the whole batch
// would have. How the gradients travel: runtime/parallel/reducer.hpp.
//
// Accumulation needs no communication until its last pass:
//
//   { auto guard = ddp.no_sync();  loss(ddp.forward(x1), y1).backward(); }   // stays local
//   loss(ddp.forward(x2), y2).backward();                                    // averages the sum
//
// A model on a GPU wants a group on that GPU (GroupOptions::device): move the model there first.
// With a group of the host it works too, by way of host memory.
//
// Inputs of unequal number: join(). The constructor fixes the set of trained parameters: the next
// forward() after a parameter was frozen, unfrozen, added or replaced is a UsageError.
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

// When the all-reduce of a full bucket starts. on: at once, on the communication thread, while
// backward goes on. off: when backward is over, on the thread that called it. Same buckets, same
// order, same bits. automatic: on where the communication thread finds a core that no rank computes
// on; where it must take turns with backward, both lose more than is hidden. alternate: off and on
// in turn, beginning with off, so that one run measures what overlap is worth: a machine's slow
// minutes fall on both.
enum class Overlap : std::uint8_t { automatic, on, off, alternate };
// "auto", "on", "off" or "alternate"; else UsageError.
Overlap parse_overlap(std::string_view name);

struct DdpOptions {
  double bucket_cap_mb = 25;            // MiB of gradients at which a bucket is closed
  double first_bucket_mb = 1;           // the first one: small, so that communication starts early
  bool find_unused_parameters = false;  // see ReducerOptions
  bool static_graph = false;            // see ReducerOptions
  // At the start of each synchronising forward with grad mode on, rank 0's buffers (running
  // statistics) replace the others'. Forwards under no_sync or NoGradGuard never communicate, so
  // that a rank may evaluate alone.
  bool broadcast_buffers = true;
  // Verify that the ranks hold the same model, and broadcast rank 0's state. Without it the program
  // answers for both.
  bool init_sync = true;
  Overlap overlap = Overlap::automatic;
  comm::ReduceOp op = comm::ReduceOp::avg;        // or sum, when the loss is a sum over samples
  std::optional<comm::Algorithm> algorithm = {};  // of the group's all-reduces from here on
  // Names of parameters and buffers that are each rank's own: neither broadcast nor reduced. The
  // same on every rank; their sizes may differ. UsageError for a name that the model does not have.
  std::vector<std::string> ignored = {};
};

// The tensors in what a forward returned.
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
  // Collective. Parameters that do not require a gradient are broadcast, and then left alone.
  // UsageError, the same on every rank, if the ranks' models or options differ, or if a tensor or a
  // name is there twice (a module gives each once, however many share it). The module must
  // outlive this object, the tensors are shared.
  DistributedDataParallel(Module& module, std::shared_ptr<comm::ProcessGroup> group,
                          const DdpOptions& options = {});
  DistributedDataParallel(const NamedTensors& parameters, const NamedTensors& buffers,
                          std::shared_ptr<comm::ProcessGroup> group,
                          const DdpOptions& options = {});

  // The module's forward; UsageError if constructed without one, or, with grad mode on, if the
  // module's parameters have changed since construction.
  Tensor forward(const Tensor& x);
  // body() is one forward pass of any form; it returns the tensors that the loss is computed from.
  template <std::invocable Body>
  auto forward(Body&& body) {
    begin_forward();
    auto result = std::forward<Body>(body)();
    std::vector<Tensor> outputs;
    collect_tensors(result, outputs);
    end_forward(outputs);
    return result;
  }

  // While the guard lives, forwards leave the gradients of their backward local.
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

  // Runs body, a loop of training steps, on ranks that may run unequally many: join.hpp.
  // Collective. Inside, each synchronising forward is followed by its backward before the next one,
  // and before the end (UsageError).
  template <std::invocable Body>
  void join(Body&& body, const JoinOptions& options = {}) {
    const JoinScope scope(*this, options);
    std::forward<Body>(body)();
    shadow_others();
  }

  // What the ranks exchange instead of an all-reduce of each bucket: comm_hooks.hpp. Once, before
  // the first forward (UsageError). The second form calls hook(state, bucket).
  void register_comm_hook(CommHook hook) { reducer_->register_comm_hook(std::move(hook)); }
  template <class State, class Hook>
  void register_comm_hook(State state, Hook hook, std::string name = "of the program") {
    register_comm_hook({std::move(name), [state = std::move(state), hook = std::move(hook)](
                                             const GradBucket& b) { return hook(state, b); }});
  }

  // Collective: rank 0's buffers replace the others'.
  void synchronise_buffers();

  // For checkpoints: the order of the buckets' gradients, by parameter number; see
  // Reducer::ready_order().
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
  NamedTensors parameters_, named_buffers_;  // all that there were, the ignored ones too
  std::vector<std::string> names_;           // of the parameters that require gradients
  std::vector<Tensor> buffers_;
  std::vector<Tensor> state_;  // all that is broadcast: parameters and buffers
  std::unique_ptr<Reducer> reducer_;
  std::optional<Join> join_;  // inside of join()
  bool joined_ = false;       // join() has been called
};

}  // namespace ringsmith
