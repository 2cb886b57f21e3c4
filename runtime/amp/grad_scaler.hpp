// GradScaler: prevents small gradients from underflowing to zero in f16 training.
//
//   f16 holds 6e-8 .. 65504. A gradient of 1e-8 rounds to 0, but multiplied by 65536 it is 6.6e-4.
//
//   for batches:
//     { const Autocast autocast(DType::f16);  loss = ...; }
//     scaler.scale(loss).backward();            gradients are S times too large
//     scaler.unscale_(optimizer);               only if they are needed, for clipping: g /= S
//     clip_grad_norm_(optimizer.params(), 1.0);
//     scaler.step(optimizer);                   g /= S unless done; then optimizer.step(), or
//                                               optimizer.skip() if a gradient is inf or NaN
//     scaler.update();                          S /= 2 after a skip; S *= 2 after 2000 steps in a
//                                               row without a skip
//
// Rules, defaults and order of calls match torch.cuda.amp.GradScaler. bf16 has the range of f32 and
// needs no scaler.
//
// A skipped step has no effect: parameters, the optimizer's state, and the state of communication
// hooks (PowerSGD's error, counters) are unchanged. The effects of forward remain, as in PyTorch:
// the batch and its random numbers are consumed, and BatchNorm's running statistics include the
// batch, except in channels where it was not finite (kernels/batchnorm.hpp).
//
// All ranks must skip the same steps, or their parameters and scales diverge permanently. With
// DistributedDataParallel this needs no communication: each rank inspects reduced gradients, which
// have the same bits on every rank, and an inf or NaN of one rank makes the sum inf or NaN on every
// rank. If ranks inspect different gradients (e.g. not reduced), pass any_rank to the scaler, which
// costs one small all-reduce per step. ZeroRedundancyOptimizer inspects only its shard and provides
// its own any_rank().
//
//   GradScaler scaler({.any_rank = any_rank(group)});     // runtime/parallel/agreement.hpp
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

struct GradScalerOptions {
  double init_scale = 65536;            // a normal f32 number: 1.2e-38 to 3.4e38
  double growth_factor = 2;             // > 1
  double backoff_factor = 0.5;          // between 0 and 1
  std::int64_t growth_interval = 2000;  // consecutive steps without inf or NaN
  bool enabled = true;                  // false: the loop behaves as if there were no scaler
  // Collective that returns true if any rank passes true. Leave it empty if all ranks inspect the
  // same gradients.
  std::function<bool(bool)> any_rank = nullptr;
};

class GradScaler {
 public:
  explicit GradScaler(GradScalerOptions options = {});  // UsageError outside of the ranges above

  // Returns the loss times the scale, in f32 or wider because an f16 loss could overflow.
  [[nodiscard]] Tensor scale(const Tensor& loss);
  // Divides the gradients, which must be f32 or f64, by the scale. Call it at most once per
  // optimizer between two updates.
  void unscale_(Optimizer& optimizer);
  // Returns true if the optimizer made its step. Waits for the device. Call it once per optimizer
  // between two updates.
  bool step(Optimizer& optimizer);
  // Call it at the end of a step, after step() of every optimizer. Throws Error if the scale falls
  // below 1.2e-38: the inverse of a much smaller scale overflows (PyTorch continues with NaN).
  // Throws UsageError if neither unscale_() nor step() has been called since the last update.
  // update(new_scale) throws only UsageError, if new_scale is out of range.
  void update();
  void update(double new_scale);

  [[nodiscard]] double get_scale() const { return options_.enabled ? double{scale_} : 1.0; }

  // The scale, the factors, the growth interval and the number of steps without inf or NaN that
  // count towards the next growth. Empty if not enabled. If an entry is missing, unknown or wrong,
  // load_state_dict throws a UsageError that names it, and changes nothing.
  [[nodiscard]] StateDict state_dict() const;
  void load_state_dict(const StateDict& state);

 private:
  enum class Stage : std::uint8_t { ready, unscaled, stepped };
  struct Seen {
    Stage stage = Stage::ready;
    bool found_inf = false;
    std::vector<Tensor> params;  // the optimizer's, because it may no longer exist at update()
  };
  void require_scale(const char* call) const;
  void begin_step();

  GradScalerOptions options_;
  float scale_;
  std::int64_t growth_tracker_ = 0;
  bool scaled_ = false;                    // scale() has been called
  std::map<const Optimizer*, Seen> seen_;  // since the last update
};

}  // namespace ringsmith
