#include "runtime/optim/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/optim.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith {

Optimizer::Optimizer(std::vector<Tensor> params, double lr, std::vector<std::string> names)
    : params_(std::move(params)),
      names_(std::move(names)),
      state_(names_.size(), std::vector<Tensor>(params_.size())),
      steps_(params_.size(), 0) {
  set_lr(lr);
  require(!params_.empty(), "optimizer got an empty parameter list");
  for (std::size_t i = 0; i < params_.size(); ++i) {
    const Tensor& p = params_[i];
    const std::string name = "optimizer: parameter " + std::to_string(i);
    require(p.defined(), name + " is undefined");
    require(p.dtype() == DType::f32 || p.dtype() == DType::f64,
            name + " is " + std::string(name_of(p.dtype())) + ", only f32 and f64 are supported");
    require(p.is_leaf(), name + " is not a leaf: optimize the tensors that it was computed from");
    require(p.is_contiguous(), name + " is not contiguous");
    for (std::size_t j = 0; j < i; ++j)
      require(!p.is_same(params_[j]),
              name + " is the same tensor as parameter " + std::to_string(j));
  }
}

void Optimizer::set_lr(double lr) {
  require(std::isfinite(lr) && lr >= 0,
          "learning rate must be finite and not negative, got " + std::to_string(lr));
  lr_ = lr;
}

void Optimizer::step() {
  for (std::size_t i = 0; i < params_.size(); ++i) {
    const Tensor grad = params_[i].grad();
    if (!grad.defined()) continue;
    update(i, params_[i], grad.contiguous(), ++steps_[i]);
    params_[i].bump_version();
  }
}

void Optimizer::zero_grad(bool set_to_none) {
  for (const Tensor& p : params_) {
    if (set_to_none)
      p.set_grad({});
    else if (const Tensor grad = p.grad(); grad.defined())
      grad.zero_();
  }
}

Tensor& Optimizer::state(std::size_t name, std::size_t i) {
  Tensor& t = state_[name][i];
  if (!t.defined()) {
    t = Tensor::empty(params_[i].sizes(), {params_[i].dtype(), params_[i].device()});
    t.zero_();
  }
  return t;
}

bool Optimizer::has_state(std::size_t name, std::size_t i) const {
  return state_[name][i].defined();
}

StateDict Optimizer::state_dict() const {
  StateDict out;
  const Tensor steps = Tensor::empty({std::ssize(steps_)}, {DType::i64});
  std::copy(steps_.begin(), steps_.end(), steps.data<std::int64_t>());
  out["steps"] = steps;
  for (std::size_t n = 0; n < names_.size(); ++n)
    for (std::size_t i = 0; i < params_.size(); ++i)
      if (has_state(n, i)) out[names_[n] + "." + std::to_string(i)] = state_[n][i];
  return out;
}

void Optimizer::load_state_dict(const StateDict& state) {
  const auto fail = [](const std::string& what) {
    throw UsageError("optimizer state does not fit: " + what);
  };
  // Everything is checked before anything is changed.
  std::vector<std::vector<Tensor>> loaded(names_.size(), std::vector<Tensor>(params_.size()));
  std::vector<std::int64_t> steps;
  for (const auto& [key, tensor] : state) {
    if (key == "steps") {
      if (tensor.dtype() != DType::i64 || tensor.numel() != std::ssize(params_))
        fail("'steps' counts other parameters than these " + std::to_string(params_.size()));
      steps = tensor.to_vector<std::int64_t>();
      continue;
    }
    bool found = false;
    for (std::size_t n = 0; n < names_.size(); ++n)
      for (std::size_t i = 0; i < params_.size() && !found; ++i) {
        if (key != names_[n] + "." + std::to_string(i)) continue;
        if (tensor.sizes() != params_[i].sizes() || tensor.dtype() != params_[i].dtype())
          fail("'" + key + "' is " + to_string(tensor.sizes()) + ", its parameter is " +
               to_string(params_[i].sizes()));
        loaded[n][i] = tensor.clone();
        found = true;
      }
    if (!found) fail("'" + key + "' is unknown to this optimizer");
  }
  if (steps.empty()) fail("'steps' is missing");
  state_ = std::move(loaded);
  steps_ = std::move(steps);
}

double clip_grad_norm_(const std::vector<Tensor>& params, double max_norm,
                       bool error_if_nonfinite) {
  require(max_norm >= 0, "clip_grad_norm_: max_norm must not be negative");
  std::vector<Tensor> grads;
  for (const Tensor& p : params)
    if (p.grad().defined()) grads.push_back(p.grad());

  double squares = 0;
  for (const Tensor& grad : grads) {
    const Tensor g = grad.contiguous();
    const double sum = g.dtype() == DType::f64 ? kernels::cpu::sum_of_squares(g.span<double>())
                                               : kernels::cpu::sum_of_squares(g.span<float>());
    const auto norm = static_cast<float>(std::sqrt(sum));
    squares += static_cast<double>(norm) * static_cast<double>(norm);
  }
  const auto total = static_cast<float>(std::sqrt(squares));
  if (error_if_nonfinite && !std::isfinite(total))
    throw Error("clip_grad_norm_: the norm of the gradients is " + std::to_string(total));

  const float factor = static_cast<float>(max_norm) / (total + 1e-6F);
  const float scale = factor > 1 ? 1 : factor;  // NaN stays NaN
  for (const Tensor& grad : grads) {
    require(grad.is_contiguous(), "clip_grad_norm_: a gradient is not contiguous");
    if (grad.dtype() == DType::f64)
      kernels::cpu::scale(grad.span<double>(), static_cast<double>(scale));
    else
      kernels::cpu::scale(grad.span<float>(), static_cast<double>(scale));
    grad.bump_version();
  }
  return static_cast<double>(total);
}

}  // namespace ringsmith
