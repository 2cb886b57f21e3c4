// FSDP, or ZeRO-3: no rank stores the whole model. Each rank keeps 1/W of the parameters, of the
// gradients and of the optimizer's state, and gathers the parameters of a unit when it needs them.
//
//   unit 1, 2 ranks    |    weight    | bias |0|    one flat parameter, padded to a multiple of W
//                      | rank 0's  | rank 1's  |    each rank keeps its shard
//
//   forward     gather 1 | run 1 .............. free 1 | run 2 ..............
//                        | gather 2 (prefetch)         | gather 3
//   backward    gather 3 | gradients 3 ........ free 3 | gradients 2 ..............  free 2
//                        | gather 2                    | reduce-scatter 3 | gather 1
//   step()      each rank updates its shards; no rank sends anything
//
// p bytes of f32 parameters, of which the largest unit has u and the root unit r; AdamW; W ranks:
//
//                              a rank keeps   in a step, at most   a rank sends in a step
//   DDP                        4 p            + 0                  2 p (W - 1) / W
//   ZeRO-2, see FsdpOptions    4 p / W        + p + r + 2 u        2 p (W - 1) / W
//   ZeRO-3                     4 p / W        + 2 r + 4 u          3 p (W - 1) / W
//
// In a step, two units have parameters: one computes while the next is being gathered. Two units
// have gradients: one computes them while the previous one's are being reduced. The root unit has
// the parameters that are in no other unit; it has its gradients during all of backward.
//
// The parameters of a unit are views of one flat tensor. To free them, FSDP releases the memory of
// the flat tensor's storage but keeps the storage object (Storage::release). All views survive,
// also those that the graph has saved for backward, and are valid again after the next gather.
// Until then, any use of the values throws UsageError.
//
//   FullyShardedDataParallel fsdp(model, {&model.first, &model.second}, group);
//   AdamW optimizer(fsdp.parameters(), options);  // of the shards
//   for (batch of this rank) {
//     optimizer.zero_grad();
//     loss(fsdp.forward(x), y).backward();        // adds the average to the shards' .grad
//     fsdp.clip_grad_norm(1.0);
//     optimizer.step();
//   }
//
// A unit works through its module's operator(). If a parent calls child.forward() instead, the
// child's parameters have no memory. Every forward is collective, also under NoGradGuard, and the
// ranks must use the same units in the same order. A parameter without a gradient counts as zeros.
// Buffers are rank 0's at construction, and each rank's own afterwards.
//
// Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", SC
// 2020. Zhao et al., "PyTorch FSDP: experiences on scaling fully sharded data parallel", VLDB 2023.
// PyTorch's fully_shard keeps the root unit's parameters between forward and backward; here they
// are freed like any other unit's, so that the table is exact.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/autograd/node.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/ddp.hpp"

namespace ringsmith {

struct FsdpUnit;

struct FsdpOptions {
  bool reshard_after_forward = true;     // ZeRO-3. False: ZeRO-2, parameters stay until backward
  Overlap overlap = Overlap::automatic;  // on: prefetch, and reduce during backward
  // Dtype of gathered parameters and of unreduced gradients. With bf16 or f16, run forward under
  // Autocast with this dtype; ranks send half the bytes, and shards and optimizer remain f32.
  DType dtype = DType::f32;
};

class FullyShardedDataParallel {
 public:
  // Collective. Rank 0's parameters and buffers replace the other ranks'. `units` are parts of the
  // module in the order in which forward uses them; prefetch relies on it. The module must outlive
  // this object, whose destructor leaves the module's parameters without memory. Throws the same
  // UsageError on every rank if models, units or options differ. Throws UsageError if a unit has no
  // parameters, is not part of the module, or shares a parameter with another unit, or if a
  // parameter is frozen, not f32, or not on the group's device.
  FullyShardedDataParallel(Module& module, const std::vector<Module*>& units,
                           std::shared_ptr<comm::ProcessGroup> group,
                           const FsdpOptions& options = {});
  ~FullyShardedDataParallel();
  FullyShardedDataParallel(const FullyShardedDataParallel&) = delete;
  FullyShardedDataParallel& operator=(const FullyShardedDataParallel&) = delete;

  // Collective. The same as module(x). With grad mode on, the backward of one forward must end
  // before the next forward (UsageError).
  Tensor forward(const Tensor& x) { return module_(x); }

  // This rank's shards, f32 and one-dimensional, the root unit's first: the parameters of any
  // elementwise optimizer.
  [[nodiscard]] std::vector<Tensor> parameters() const;
  // Collective. Like clip_grad_norm_ for the gradients of all shards of all ranks.
  double clip_grad_norm(double max_norm);

  // Collective. During the scope all parameters have memory, e.g. to generate text on one rank, and
  // forward communicates nothing. The values may be read, but not written. Scopes may be nested.
  class [[nodiscard]] Whole {
   public:
    explicit Whole(FullyShardedDataParallel& fsdp) : fsdp_(fsdp) { fsdp_.begin_whole(); }
    ~Whole() { fsdp_.end_whole(); }
    Whole(const Whole&) = delete;
    Whole& operator=(const Whole&) = delete;

   private:
    FullyShardedDataParallel& fsdp_;
  };
  Whole whole() { return Whole(*this); }

  // ---- state, whole: the format of the module and of a plain optimizer of its parameters ----
  // Collective. Memory for the whole state is needed on every rank.
  [[nodiscard]] StateDict state_dict() const;
  [[nodiscard]] StateDict state_dict(const Optimizer& optimizer) const;
  // From any number of ranks. The state must be the same on every rank. UsageError names the entry
  // that does not fit.
  void load_state_dict(const StateDict& state);
  void load_state_dict(Optimizer& optimizer, const StateDict& state) const;

  // ---- state, sharded: each rank saves what it has, without communication ----
  // load_shards() continues a run of `ranks` ranks with the same units. It calls read(r), which
  // returns the shards() of rank r, only for rank 0 and for ranks that have a part of this rank's.
  [[nodiscard]] StateDict shards(const Optimizer& optimizer) const;
  void load_shards(Optimizer& optimizer, int ranks, const std::function<StateDict(int rank)>& read);

  // Bytes of parameters that have memory now: shards, and units that are gathered.
  [[nodiscard]] Bytes parameter_bytes() const;
  [[nodiscard]] comm::ProcessGroup& group() const { return *group_; }

 private:
  enum class FsdpPhase : std::uint8_t { idle, forward, armed, backward };

  Tensor run(FsdpUnit& unit, const Tensor& x);
  Tensor run_gathered(FsdpUnit& unit, const Tensor& x);
  void before_backward(FsdpUnit& unit);
  void on_gradient(FsdpUnit& unit);
  void reduce(FsdpUnit& unit);
  void collect();
  void finish_backward();
  void gather(FsdpUnit& unit, int next);
  void begin_whole();
  void end_whole();
  [[nodiscard]] Tensor whole_of(const FsdpUnit& unit, const Tensor& shard) const;
  [[nodiscard]] std::vector<FsdpUnit*> sharded_units() const;

  Module& module_;
  std::shared_ptr<comm::ProcessGroup> group_;
  FsdpOptions options_;
  bool overlap_ = false;
  std::vector<std::unique_ptr<FsdpUnit>> units_;  // the root's first
  FsdpPhase phase_ = FsdpPhase::idle;
  FsdpUnit* reducing_ = nullptr;  // whose reduce-scatter is in flight
  int whole_ = 0;                 // nested scopes
};

}  // namespace ringsmith
