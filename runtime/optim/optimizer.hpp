// Optimizers: SGD, Adam and AdamW, and their common base.
//
//   for batches:  optimizer.zero_grad();  loss.backward();  optimizer.set_lr(schedule(step));
//                 optimizer.step();
//
// A parameter whose .grad is undefined is skipped, and its state is unchanged. The arithmetic is in
// kernels/optim.hpp; with --kernels oracle the bits equal PyTorch's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

// An optimizer's options, keyed by PyTorch's names: {"lr", {0.1}}, {"betas", {0.9, 0.999}}. Flags
// are 0 or 1.
using Hyperparameters = std::map<std::string, std::vector<double>>;

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  void step();  // updates every parameter that has a gradient, in place
  // Call it instead of step() if the gradients are unusable, e.g. infinite or NaN (GradScaler).
  // Changes neither parameters nor state, but notifies code that keeps data about these gradients
  // (HookTurn::skipped), such as DistributedDataParallel's hooks.
  void skip() const;

  // If set_to_none, .grad becomes undefined. Otherwise it is zeroed in place, so that gradients
  // keep their memory.
  void zero_grad(bool set_to_none = true);

  [[nodiscard]] double lr() const { return lr_; }
  virtual void set_lr(double lr);  // UsageError if negative or not finite
  [[nodiscard]] const std::vector<Tensor>& params() const { return params_; }

  // The gradients that step() would use, by reference.
  [[nodiscard]] virtual std::vector<Tensor> gradients() const;
  // True if any rank passes true. Collective in optimizers whose gradients() differ between ranks.
  // In other optimizers every rank passes the same value, which is returned.
  [[nodiscard]] virtual bool any_rank(bool mine) const { return mine; }

  // Names of the state tensors that this optimizer may keep per parameter: "exp_avg", ...
  [[nodiscard]] virtual const std::vector<std::string>& state_names() const { return names_; }
  // Keeps the learning rate and the step counts on the GPU of the parameters, too, where the
  // kernels of a captured step read and advance them (step_graph.hpp). The steps have the same
  // bits, except for the rounding of the GPU's pow(). Throws UsageError if this kind of optimizer
  // cannot, or if the parameters are not on a GPU.
  virtual void count_on_device();

  // True if the state includes "step", the number of a parameter's updates.
  [[nodiscard]] virtual bool counts_steps() const { return counts_; }

  // The state in PyTorch's two parts, flattened as by torch.distributed.checkpoint, with one
  // parameter group:
  //
  //   state.3.step            i64 []     updates of parameter 3, if the optimizer counts them
  //   state.3.exp_avg         as parameter 3; memory shared with the optimizer
  //   param_groups.0.lr       f64 []     and every other hyperparameter: betas [2], eps, ...
  //   param_groups.0.params   i64 [n]    0, 1, ... n - 1
  //
  // A parameter that has never had a gradient has no entries.
  [[nodiscard]] virtual StateDict state_dict() const;
  // Copies the state and, as in PyTorch, replaces the hyperparameters. If an entry does not fit
  // these parameters or this kind of optimizer, or check_optimizer_state() rejects it, throws a
  // UsageError that names the first such entry, and changes nothing.
  virtual void load_state_dict(const StateDict& state);

 protected:
  // Throws UsageError if lr is negative or not finite, if params is empty or holds a tensor twice,
  // or if a tensor is undefined, not a leaf, not contiguous, or neither f32 nor f64.
  Optimizer(std::vector<Tensor> params, double lr, std::vector<std::string> names, bool counts);

  // All hyperparameters except lr. set_hyperparameters() is called with the same names and the same
  // number of values per name. It throws UsageError if a value is out of range.
  [[nodiscard]] virtual Hyperparameters hyperparameters() const = 0;
  virtual void set_hyperparameters(const Hyperparameters& values) = 0;

  // Parameter i and its contiguous gradient. steps: number of this parameter's updates, including
  // this one.
  struct Update {
    std::size_t i;
    Tensor param, grad;
    std::int64_t steps;
  };
  // Updates all parameters that have a gradient, in order.
  virtual void update(const std::vector<Update>& all) = 0;

  // Returns state tensor `name` (an index into names) of parameter i, which is created with zeros
  // on first use.
  Tensor& state(std::size_t name, std::size_t i);
  [[nodiscard]] bool has_state(std::size_t name, std::size_t i) const;

  // The copies that kernels read and advance: kernels::AdamClock for each parameter.
  struct DeviceCounts {
    Tensor clocks;            // f64 [parameters, 4]
    Tensor lr;                // f64 [1]
    double lr_there = -1;     // value of lr
    bool clocks_fit = false;  // false: the host's counts have changed in another way
  };
  [[nodiscard]] const std::optional<DeviceCounts>& device_counts() const { return counts_there_; }
  void start_device_counts();

 private:
  friend class StepGraph;
  void update_device_counts();
  // Does the host's part of a step whose kernels a graph has launched.
  void replayed();

  std::vector<Tensor> params_;
  double lr_ = 0;
  std::vector<std::string> names_;
  bool counts_;
  std::vector<std::vector<Tensor>> state_;  // [name][parameter], undefined until first used
  std::vector<std::int64_t> steps_;
  std::optional<DeviceCounts> counts_there_;
  std::vector<std::size_t> captured_;  // the parameters that the captured step updates
};

// Throws a UsageError that names the first entry that training never produces: a step that is not a
// count of updates, a tensor with NaN or an infinity, or a negative element of "exp_avg_sq" or
// "max_exp_avg_sq".
void check_optimizer_state(const StateDict& state);

// Scales all gradients by one factor so that their joint 2-norm is at most max_norm. Returns the
// norm before scaling as one f32 on their device, so that the host need not wait for a GPU. As in
// PyTorch, the joint norm is the norm of the tensors' norms in f32, and the gradients are always
// multiplied by min(1, max_norm / (norm + 1e-6)). Squares are summed in f64. Undefined gradients
// are ignored.
//
// If the norm is NaN or infinite, the gradients become NaN or 0; with error_if_nonfinite, an Error
// is thrown instead, which names the first parameter whose gradient is not finite, if any. Throws
// UsageError if max_norm is negative or NaN, or if gradients are on different devices, not
// contiguous, or neither f32 nor f64.
Tensor clip_grad_norm_(const std::vector<Tensor>& params, double max_norm,
                       bool error_if_nonfinite = false);

// Stochastic gradient descent with momentum, like torch.optim.SGD.
//
//   d   = g + weight_decay p
//   buf = momentum buf + (1 - dampening) d      first step: buf = d
//   p  -= lr (nesterov ? d + momentum buf : buf)
struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

class SGD : public Optimizer {
 public:
  // Throws UsageError if an option is negative or not finite (dampening may be negative), or if
  // nesterov is set without momentum or with dampening.
  SGD(std::vector<Tensor> params, SGDOptions options);

 private:
  void update(const std::vector<Update>& all) override;
  [[nodiscard]] Hyperparameters hyperparameters() const override;
  void set_hyperparameters(const Hyperparameters& values) override;
  SGDOptions options_;
};

// Adam (Kingma and Ba, 2014) and AdamW (Loshchilov and Hutter, 2017), as in torch.optim.
//
//   m  = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g g
//   p -= lr / (1 - beta1^t)  m / (sqrt(v / (1 - beta2^t)) + eps)
//
// Adam adds weight_decay p to g, so the adaptive step also scales the decay. AdamW instead
// multiplies p by 1 - lr weight_decay. amsgrad divides by the largest v so far.
struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  // AdamW's usual value is 1e-2
  bool amsgrad = false;
};

class Adam : public Optimizer {
 public:
  // Throws UsageError if a beta is outside [0, 1), or if lr, eps or weight_decay is negative or not
  // finite.
  Adam(std::vector<Tensor> params, AdamOptions options) : Adam(std::move(params), options, false) {}

  void count_on_device() override { start_device_counts(); }

 protected:
  Adam(std::vector<Tensor> params, AdamOptions options, bool decoupled);

 private:
  void update(const std::vector<Update>& all) override;
  [[nodiscard]] Hyperparameters hyperparameters() const override;
  void set_hyperparameters(const Hyperparameters& values) override;
  AdamOptions options_;
  bool decoupled_;
};

class AdamW : public Adam {
 public:
  AdamW(std::vector<Tensor> params, AdamOptions options) : Adam(std::move(params), options, true) {}
};

// Learning-rate schedules are pure functions of the step number, counted from 0. They have no state
// to save.
//
//   warm-up         cosine                    rate
//      /------------\__                       peak
//     /                \__
//    /                    \___________        floor
//   0      warmup            total            step
using LrSchedule = std::function<double(std::int64_t step)>;

[[nodiscard]] LrSchedule constant_lr(double lr);

// peak (step + 1) / warmup until step = warmup - 1, then peak. warmup = 0: no warm-up.
[[nodiscard]] LrSchedule warmup_lr(double peak, std::int64_t warmup);

// After the warm-up, half a cosine from peak at step = warmup to floor at step = total, then floor.
[[nodiscard]] LrSchedule cosine_lr(double peak, std::int64_t warmup, std::int64_t total,
                                   double floor = 0);

// lr gamma^floor(step / every).
[[nodiscard]] LrSchedule step_lr(double lr, std::int64_t every, double gamma = 0.1);

}  // namespace ringsmith
