// GradScaler: keeps small gradients of f16 training from becoming zero.
//
//   f16 holds 6e-8 .. 65504. A gradient of 1e-8 is 0 in it; 65536 times as large it is 6.6e-4.
//
//   for batches:
//     { const Autocast autocast(DType::f16);  loss = ...; }
//     scaler.scale(loss).backward();            gradients are S times too large
//     scaler.unscale_(optimizer);               only to look at them, for clipping: g /= S
//     clip_grad_norm_(optimizer.params(), 1.0);
//     scaler.step(optimizer);                   g /= S unless done; optimizer.step() unless a
//                                               gradient is inf or NaN then: optimizer.skip()
//     scaler.update();                          S /= 2 if one was; S *= 2 after 2000 steps in a row
//                                               without
//
// The rules, the defaults and the order of calls are torch.cuda.amp.GradScaler's
// (torch/cuda/amp/grad_scaler.py). bf16 has the range of f32 and needs no scaler.
//
// A skipped step leaves nothing behind: parameters, the optimizer's state, and the state of
// communication hooks (PowerSGD's error, counters) are as before it. Forward's effects remain, as
// in PyTorch: the batch and its random numbers are used up, and BatchNorm's running statistics have
// seen the batch, except in channels where it was not finite (kernels/batchnorm.hpp).
//
// Ranks. All must skip the same steps, or their parameters and scales part for good. With
// DistributedDataParallel they do so without a word: each rank looks at gradients that are reduced
// already, the same bits everywhere, and one rank's inf or NaN is inf or NaN in every sum that it
// enters, be it rounded to f16 or bf16 on the way. That holds for gradients which all ranks have.
// Where ranks look at different ones (gradients that were not reduced), give the scaler an
// agreement, which is one small all-reduce in each step. ZeroRedundancyOptimizer, which looks at
// its shard, brings its own.
//
//   GradScaler scaler({.any_rank = any_rank(group)});     // runtime/parallel/agreement.hpp
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

struct GradScalerOptions {
  double init_scale = 65536;            // a normal number of f32: 1.2e-38 to 3.4e38
  double growth_factor = 2;             // > 1
  double backoff_factor = 0.5;          // between 0 and 1
  std::int64_t growth_interval = 2000;  // steps in a row without inf or NaN
  bool enabled = true;                  // not: every call is what a loop without a scaler does
  // Collective: whether any rank says true; none: what this rank sees is what all see.
  std::function<bool(bool)> any_rank = nullptr;
};

class GradScaler {
 public:
  explicit GradScaler(GradScalerOptions options = {});  // UsageError outside of the ranges above

  // loss times the scale; at least f32, so that a f16 loss cannot overflow.
  [[nodiscard]] Tensor scale(const Tensor& loss);
  // Divides the gradients by the scale, once between two updates. They must be f32 or f64.
  void unscale_(Optimizer& optimizer);
  // Whether the step was made. Waits for the device. Once for an optimizer between two updates.
  bool step(Optimizer& optimizer);
  // At the end of a step, after step() of every optimizer. Error if the scale falls to 0, or so far
  // that its inverse overflows (PyTorch continues with NaN). UsageError if new_scale is out of
  // range.
  void update();
  void update(double new_scale);

  [[nodiscard]] double get_scale() const { return options_.enabled ? double{scale_} : 1.0; }

  // The scale, the factors and the steps since it changed; empty if not enabled. load_state_dict
  // throws UsageError naming the entry that is missing, unknown or wrong; nothing has changed then.
  [[nodiscard]] StateDict state_dict() const;
  void load_state_dict(const StateDict& state);

 private:
  enum class Stage : std::uint8_t { ready, unscaled, stepped };
  struct Seen {
    Stage stage = Stage::ready;
    bool found_inf = false;
  };
  void require_scale(const char* call) const;

  GradScalerOptions options_;
  float scale_;
  std::int64_t growth_tracker_ = 0;
  bool scaled_ = false;                    // scale() has been called
  std::map<const Optimizer*, Seen> seen_;  // since the last update
};

}  // namespace ringsmith
