// Optimizers: SGD, Adam and AdamW, and what they have in common.
//
//   for batches:  optimizer.zero_grad();  loss.backward();  optimizer.set_lr(schedule(step));
//                 optimizer.step();
//
// A parameter whose .grad is undefined is skipped, its state untouched. The arithmetic is in
// kernels/optim.hpp; with --kernels oracle it has PyTorch's bits.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

// What an optimizer was told, by PyTorch's names: {"lr", {0.1}}, {"betas", {0.9, 0.999}}; flags are
// 0 or 1.
using Hyperparameters = std::map<std::string, std::vector<double>>;

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  void step();  // updates every parameter that has a gradient, in place
  // In place of step(), where the gradients are of no use: infinite, NaN (GradScaler), or by the
  // program's own judgement. Nothing changes, and code that keeps something of these gradients for
  // later steps is told (HookTurn::skipped): DistributedDataParallel's hooks.
  void skip() const;

  // To none: .grad becomes undefined. Otherwise it is zeroed in place, which keeps gradients where
  // they are, for instance in the buckets of DistributedDataParallel.
  void zero_grad(bool set_to_none = true);

  [[nodiscard]] double lr() const { return lr_; }
  virtual void set_lr(double lr);  // UsageError if negative or not finite
  [[nodiscard]] const std::vector<Tensor>& params() const { return params_; }

  // The gradients that step() would use, as they are in memory; GradScaler divides them.
  [[nodiscard]] virtual std::vector<Tensor> gradients() const;
  // Collective where the ranks' gradients() differ: whether any rank says true. Else mine.
  [[nodiscard]] virtual bool any_rank(bool mine) const { return mine; }

  // Of the tensors that it may keep for a parameter: "exp_avg", ...
  [[nodiscard]] virtual const std::vector<std::string>& state_names() const { return names_; }
  [[nodiscard]] virtual bool counts_steps() const { return counts_; }  // and "step"

  // PyTorch's two parts, flat as torch.distributed.checkpoint writes them; there is one group:
  //
  //   state.3.step            i64 []     updates of parameter 3, where the optimizer counts them
  //   state.3.exp_avg         as parameter 3, whose memory the optimizer and this share
  //   param_groups.0.lr       f64 []     and each other hyperparameter: betas [2], eps, ...
  //   param_groups.0.params   i64 [n]    0, 1, ... n - 1
  //
  // A parameter that has never had a gradient has no entries.
  [[nodiscard]] virtual StateDict state_dict() const;
  // Copies; as in PyTorch, hyperparameters become what they were in `state`. UsageError naming the
  // first entry that does not fit these parameters and this kind of optimizer, or that
  // check_optimizer_state() refuses; then nothing has been changed.
  virtual void load_state_dict(const StateDict& state);

 protected:
  // UsageError if params is empty, or holds a tensor twice, a non-leaf, or one that is neither f32
  // nor f64. names are the state tensors that the optimizer may keep for each parameter; counts:
  // the number of updates is state too.
  Optimizer(std::vector<Tensor> params, double lr, std::vector<std::string> names, bool counts);

  // All but lr. What is set has the same names and numbers of values; UsageError if out of range.
  [[nodiscard]] virtual Hyperparameters hyperparameters() const = 0;
  virtual void set_hyperparameters(const Hyperparameters& values) = 0;

  // Parameter i and its contiguous gradient. steps counts the updates of this parameter, from 1.
  struct Update {
    std::size_t i;
    Tensor param, grad;
    std::int64_t steps;
  };
  // All that have a gradient, in order.
  virtual void update(const std::vector<Update>& all) = 0;

  // State tensor `name` (an index into names) of parameter i, zeros on first use.
  Tensor& state(std::size_t name, std::size_t i);
  [[nodiscard]] bool has_state(std::size_t name, std::size_t i) const;

 private:
  std::vector<Tensor> params_;
  double lr_ = 0;
  std::vector<std::string> names_;
  bool counts_;
  std::vector<std::vector<Tensor>> state_;  // [name][parameter], undefined until first used
  std::vector<std::int64_t> steps_;         // updates of each parameter
};

// UsageError naming the first entry that no training leaves behind: a step that is no count of
// updates, NaN or an infinity in a tensor, a negative mean of squares ("exp_avg_sq").
void check_optimizer_state(const StateDict& state);

// Scales all gradients together so that their 2-norm is at most max_norm, and returns the norm they
// had, one f32 on their device (so that a GPU need not be waited for). As in PyTorch: the norm of
// the tensors' norms in f32, and the factor min(1, max_norm / (norm + 1e-6)) is always multiplied.
// Squares are added up in f64. Undefined gradients are left out. After DDP's reduction every rank
// computes the same factor without communication. A NaN or infinite norm is a plain Error that
// names the first parameter to blame if error_if_nonfinite, else it is returned and the gradients
// become NaN or 0. UsageError if max_norm is negative or NaN, or if gradients are on different
// devices or not contiguous.
Tensor clip_grad_norm_(const std::vector<Tensor>& params, double max_norm,
                       bool error_if_nonfinite = false);

// Stochastic gradient descent with momentum, as torch.optim.SGD.
//
//   d   = g + weight_decay p
//   buf = momentum buf + (1 - dampening) d      the first time buf = d
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
  // UsageError if an option is negative or not finite, or nesterov goes without momentum or with
  // dampening.
  SGD(std::vector<Tensor> params, SGDOptions options);

 private:
  void update(const std::vector<Update>& all) override;
  [[nodiscard]] Hyperparameters hyperparameters() const override;
  void set_hyperparameters(const Hyperparameters& values) override;
  SGDOptions options_;
};

// Adam (Kingma and Ba, 2014) and AdamW (Loshchilov and Hutter, 2017), as torch.optim.
//
//   m  = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g g
//   p -= lr / (1 - beta1^t)  m / (sqrt(v / (1 - beta2^t)) + eps)
//
// Adam adds weight_decay p to g, so that decay is scaled by the adaptive step as well; AdamW
// shrinks p by lr weight_decay instead. amsgrad divides by the largest v so far.
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
  // UsageError if a beta is outside [0, 1), or eps or weight_decay is negative or not finite.
  Adam(std::vector<Tensor> params, AdamOptions options) : Adam(std::move(params), options, false) {}

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

// Learning-rate schedules: pure functions of the step number, counted from 0. There is no state to
// save: a resumed run asks for the same step and gets the same rate.
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

// After the warm-up, half a cosine from peak at step = warmup to floor at step = total and after.
[[nodiscard]] LrSchedule cosine_lr(double peak, std::int64_t warmup, std::int64_t total,
                                   double floor = 0);

// lr gamma^(step / every), in whole periods of `every` steps.
[[nodiscard]] LrSchedule step_lr(double lr, std::int64_t every, double gamma = 0.1);

}  // namespace ringsmith
