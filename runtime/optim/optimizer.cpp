#include "runtime/optim/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numbers>
#include <set>
#include <string>
#include <utility>

#include "kernels/optim.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/capture.hpp"
#include "runtime/tensor/raw.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

Optimizer::Optimizer(std::vector<Tensor> params, double lr, std::vector<std::string> names,
                     bool counts)
    : params_(std::move(params)),
      names_(std::move(names)),
      counts_(counts),
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
    require(p.is_contiguous(), name + " is not contiguous: create it from a contiguous tensor");
    for (std::size_t j = 0; j < i; ++j)
      require(!p.is_same(params_[j]),
              name + " is the same tensor as parameter " + std::to_string(j));
  }
}

void Optimizer::step() {
  const bool captured = capture::active();
  if (captured && !counts_there_)
    capture::refuse(
        "run this optimizer, because the learning rate and the number of the step are arguments of "
        "its kernels, and the same in each replay: use Adam or AdamW with count_on_device()");
  if (!captured) update_device_counts();
  std::vector<Update> all;
  for (std::size_t i = 0; i < params_.size(); ++i) {
    const Tensor grad = params_[i].grad();
    if (!grad.defined()) continue;
    for (std::size_t n = 0; n < names_.size(); ++n)
      if (has_state(n, i)) (void)raw::common_device("optimizer", params_[i], state_[n][i]);
    all.push_back({i, params_[i], grad.contiguous(), steps_[i] + 1});
  }
  update(all);
  for (const Update& u : all) {
    if (captured)
      captured_.push_back(u.i);
    else
      steps_[u.i] = u.steps;
    u.param.bump_version();
  }
}

void Optimizer::replayed() {
  for (const std::size_t i : captured_) {
    ++steps_[i];
    params_[i].bump_version();
  }
}

void Optimizer::count_on_device() {
  throw UsageError(
      "this optimizer cannot keep its step count on a GPU, and so cannot be captured: use Adam or "
      "AdamW");
}

void Optimizer::start_device_counts() {
  const Device device = params_.front().device();
  for (const Tensor& p : params_)
    require(device.is_cuda() && p.device() == device,
            "step counts on a GPU need all parameters there, but one is on " + p.device().str());
  if (!counts_there_)
    counts_there_ = DeviceCounts{
        Tensor::empty({std::ssize(params_), sizeof(kernels::AdamClock) / sizeof(double)},
                      {DType::f64, device}),
        Tensor::empty({1}, {DType::f64, device})};
  update_device_counts();
}

void Optimizer::update_device_counts() {
  if (!counts_there_) return;
  if (!counts_there_->clocks_fit) {
    std::vector<double> rows;
    for (const std::int64_t steps : steps_)
      rows.insert(rows.end(), {static_cast<double>(steps), 0, 1, 1});
    counts_there_->clocks.copy_(from_vector(rows, counts_there_->clocks.sizes()));
    counts_there_->clocks_fit = true;
  }
  if (counts_there_->lr_there == lr_) return;
  counts_there_->lr.copy_(from_vector<double>({lr_}));
  counts_there_->lr_there = lr_;
}

void Optimizer::skip() const { skip_step(params_); }

std::vector<Tensor> Optimizer::gradients() const {
  std::vector<Tensor> out;
  for (const Tensor& p : params_)
    if (p.grad().defined()) out.push_back(p.grad());
  return out;
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
  if (t.defined()) return t;
  capture::refuse("create an optimizer's state: run the step before the capture");
  t = zeros_like(params_[i]);
  return t;
}

bool Optimizer::has_state(std::size_t name, std::size_t i) const {
  return state_[name][i].defined();
}

namespace {

const std::string kGroup = "param_groups.0.";

std::string entry_of(std::size_t parameter, const std::string& name) {
  return "state." + std::to_string(parameter) + "." + name;
}

void check_lr(double lr) {
  require(std::isfinite(lr) && lr >= 0,
          "learning rate must be finite and not negative, got " + std::to_string(lr));
}

}  // namespace

void Optimizer::set_lr(double lr) {
  capture::refuse("set the learning rate, because a replay would not: set it before the replay");
  check_lr(lr);
  lr_ = lr;
}

void check_optimizer_state(const StateDict& state) {
  const auto fail = [](const std::string& key, const std::string& what) {
    throw UsageError("optimizer state: '" + key + "' " + what +
                     ", which training never produces: load another state");
  };
  constexpr double kMostSteps = 1LL << 53;
  for (const auto& [key, tensor] : state) {
    if (key.rfind("state.", 0) != 0) continue;
    if (key.ends_with(".step")) {
      for (const double steps : tensor.to(DType::f64).to_vector<double>())
        if (!(steps >= 0 && steps <= kMostSteps && steps == std::floor(steps)))
          fail(key, fmt::format("is {}", steps));
      continue;
    }
    if (!raw::all_finite(tensor)) fail(key, "holds NaN or an infinity");
    if (!key.ends_with("_sq") || !is_floating(tensor.dtype()) || tensor.numel() == 0) continue;
    const double below_zero = max(neg(raw::wide(tensor))).to(DType::f64).item<double>();
    if (below_zero > 0) fail(key, fmt::format("holds {}", -below_zero));
  }
}

StateDict Optimizer::state_dict() const {
  StateDict out;
  for (std::size_t i = 0; i < params_.size(); ++i) {
    if (counts_ && steps_[i] > 0)
      out[entry_of(i, "step")] = from_vector<std::int64_t>({steps_[i]}, {});
    for (std::size_t n = 0; n < names_.size(); ++n)
      if (has_state(n, i)) out[entry_of(i, names_[n])] = state_[n][i];
  }
  Hyperparameters group = hyperparameters();
  group["lr"] = {lr_};
  for (const auto& [name, values] : group)
    out[kGroup + name] =
        from_vector(values, values.size() == 1 ? Shape{} : Shape{std::ssize(values)});
  out[kGroup + "params"] = arange(std::ssize(params_));
  return out;
}

void Optimizer::load_state_dict(const StateDict& state) {
  const auto fail = [](const std::string& what) {
    throw UsageError("optimizer state does not fit: " + what +
                     "; load it into an optimizer of the same kind with the same parameters");
  };
  check_optimizer_state(state);
  // Everything is checked before anything is changed. find() records the known keys.
  std::set<std::string> known;
  const auto find = [&](const std::string& key) -> const Tensor* {
    known.insert(key);
    const auto at = state.find(key);
    return at == state.end() ? nullptr : &at->second;
  };
  const Tensor* params = find(kGroup + "params");
  if (params == nullptr) fail("'" + kGroup + "params' is missing");
  if (params->numel() != std::ssize(params_))
    fail("it has " + std::to_string(params->numel()) + " parameters, this optimizer has " +
         std::to_string(params_.size()));
  Hyperparameters group = hyperparameters();
  group["lr"] = {lr_};
  for (auto& [name, values] : group) {
    const Tensor* given = find(kGroup + name);
    if (given == nullptr) fail("'" + kGroup + name + "' is missing: the state is of another kind");
    if (given->numel() != std::ssize(values))
      fail("'" + kGroup + name + "' has " + std::to_string(given->numel()) + " values");
    values = given->to(DType::f64).to_vector<double>();
  }
  std::vector<std::vector<Tensor>> loaded(names_.size(), std::vector<Tensor>(params_.size()));
  std::vector<std::int64_t> steps(params_.size(), 0);
  for (std::size_t i = 0; i < params_.size(); ++i) {
    const Tensor* count = counts_ ? find(entry_of(i, "step")) : nullptr;
    if (count != nullptr) {
      if (count->numel() != 1) fail("'" + entry_of(i, "step") + "' is not one number");
      steps[i] = count->to(DType::i64).item<std::int64_t>();
    }
    for (std::size_t n = 0; n < names_.size(); ++n) {
      const std::string key = entry_of(i, names_[n]);
      const Tensor* given = find(key);
      if (given == nullptr) continue;
      if (given->sizes() != params_[i].sizes() || given->dtype() != params_[i].dtype())
        fail("'" + key + "' is " + to_string(given->sizes()) + ", its parameter is " +
             to_string(params_[i].sizes()));
      if (counts_ && count == nullptr) fail("'" + key + "' is present without a step");
      loaded[n][i] = Tensor::empty(given->sizes(), params_[i].options());
      loaded[n][i].copy_(*given);
    }
  }
  for (const auto& [key, tensor] : state)
    if (known.count(key) == 0) fail("'" + key + "' is unknown to this optimizer");
  const double lr = group.at("lr").front();
  group.erase("lr");
  check_lr(lr);
  set_hyperparameters(group);
  lr_ = lr;
  state_ = std::move(loaded);
  steps_ = std::move(steps);
  if (counts_there_) counts_there_->clocks_fit = false;
}

namespace {

std::string describe_nonfinite(const std::vector<Tensor>& params, float norm) {
  const std::string all = fmt::format("clip_grad_norm_: the norm of the gradients is {}", norm);
  for (std::size_t i = 0; i < params.size(); ++i)
    if (const Tensor grad = params[i].grad(); grad.defined() && !raw::all_finite(grad))
      return fmt::format("{}: the gradient of parameter {}, {}{}, holds NaN or an infinity", all, i,
                         name_of(grad.dtype()), to_string(grad.sizes()));
  return all + ", beyond f32, though each gradient is finite";
}

}  // namespace

Tensor clip_grad_norm_(const std::vector<Tensor>& params, double max_norm,
                       bool error_if_nonfinite) {
  require(max_norm >= 0,
          fmt::format("clip_grad_norm_: max_norm must be 0 or more, got {}", max_norm));
  std::vector<Tensor> grads;
  for (const Tensor& p : params)
    if (p.grad().defined()) grads.push_back(p.grad());

  const Device device = grads.empty() ? Device::cpu() : grads.front().device();
  const Tensor sums = Tensor::empty({std::ssize(grads)}, {DType::f64, device});
  Tensor norm = Tensor::empty({}, {DType::f32, device});
  const Tensor factor = empty_like(norm);
  const std::span<double> all = sums.kernel_span<double>();
  for (std::size_t i = 0; i < grads.size(); ++i) {
    require(grads[i].is_contiguous(),
            "clip_grad_norm_: a gradient is not contiguous: set it to its contiguous()");
    (void)raw::common_device("clip_grad_norm_", sums, grads[i]);
    raw::visit_arithmetic(grads[i].dtype(), "clip_grad_norm_", [&]<class T>(TypeTag<T>) {
      kernels::sum_of_squares(device, grads[i].kernel_span<T>(), all.subspan(i, 1));
    });
  }
  kernels::clip_factor(device, all, max_norm, norm.kernel_span<float>(),
                       factor.kernel_span<float>());
  if (error_if_nonfinite && !std::isfinite(norm.item<float>()))
    throw Error(describe_nonfinite(params, norm.item<float>()));
  for (const Tensor& grad : grads) {
    raw::visit_arithmetic(grad.dtype(), "clip_grad_norm_", [&]<class T>(TypeTag<T>) {
      kernels::scale(device, grad.kernel_span<T>(), factor.kernel_span<float>());
    });
    grad.bump_version();
  }
  return norm;
}

// ---- SGD ----

namespace {

constexpr std::size_t kMomentum = 0;

void check_amount(const char* what, double value) {
  require(std::isfinite(value) && value >= 0,
          fmt::format("{} must {}, got {}", what,
                      value < 0 ? "not be negative" : "be a finite number", value));
}

void check_options(const SGDOptions& options) {
  check_amount("SGD: momentum", options.momentum);
  check_amount("SGD: weight decay", options.weight_decay);
  require(std::isfinite(options.dampening),
          fmt::format("SGD: dampening must be a finite number, got {}", options.dampening));
  require(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
          "SGD: Nesterov momentum requires a momentum and zero dampening");
}

}  // namespace

SGD::SGD(std::vector<Tensor> params, SGDOptions options)
    : Optimizer(std::move(params), options.lr, {"momentum_buffer"}, false), options_(options) {
  check_options(options);
}

Hyperparameters SGD::hyperparameters() const {
  return {{"momentum", {options_.momentum}},
          {"dampening", {options_.dampening}},
          {"weight_decay", {options_.weight_decay}},
          {"nesterov", {options_.nesterov ? 1.0 : 0.0}}};
}

void SGD::set_hyperparameters(const Hyperparameters& values) {
  SGDOptions options = options_;
  options.momentum = values.at("momentum")[0];
  options.dampening = values.at("dampening")[0];
  options.weight_decay = values.at("weight_decay")[0];
  options.nesterov = values.at("nesterov")[0] != 0;
  check_options(options);
  options_ = options;
}

void SGD::update(const std::vector<Update>& all) {
  kernels::SgdStep step;
  step.lr = lr();
  step.momentum = options_.momentum;
  step.dampening = options_.dampening;
  step.weight_decay = options_.weight_decay;
  step.nesterov = options_.nesterov;
  for (const Update& u : all) {
    step.first = !has_state(kMomentum, u.i);
    const auto run = [&]<class T>(TypeTag<T>) {
      kernels::sgd(u.param.device(), u.param.kernel_span<T>(), u.grad.kernel_span<T>(),
                   options_.momentum != 0 ? state(kMomentum, u.i).kernel_span<T>() : std::span<T>{},
                   step);
    };
    u.param.dtype() == DType::f64 ? run(TypeTag<double>{}) : run(TypeTag<float>{});
  }
}

// ---- Adam ----

namespace {

constexpr std::size_t kMean = 0, kSquare = 1, kLargest = 2;

void check_options(const AdamOptions& options) {
  for (const double beta : {options.beta1, options.beta2})
    require(beta >= 0 && beta < 1, "Adam: betas must be in [0, 1), got " + std::to_string(beta));
  check_amount("Adam: eps", options.eps);
  check_amount("Adam: weight decay", options.weight_decay);
}

std::span<kernels::AdamClock> clocks_in(const Tensor& rows) {
  static_assert(sizeof(kernels::AdamClock) == 4 * sizeof(double));
  return {reinterpret_cast<kernels::AdamClock*>(rows.kernel_span<double>().data()),
          static_cast<std::size_t>(rows.size(0))};
}

}  // namespace

Adam::Adam(std::vector<Tensor> params, AdamOptions options, bool decoupled)
    : Optimizer(std::move(params), options.lr, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, true),
      options_(options),
      decoupled_(decoupled) {
  check_options(options);
}

Hyperparameters Adam::hyperparameters() const {
  return {{"betas", {options_.beta1, options_.beta2}},
          {"eps", {options_.eps}},
          {"weight_decay", {options_.weight_decay}},
          {"amsgrad", {options_.amsgrad ? 1.0 : 0.0}}};
}

void Adam::set_hyperparameters(const Hyperparameters& values) {
  AdamOptions options = options_;
  options.beta1 = values.at("betas")[0];
  options.beta2 = values.at("betas")[1];
  options.eps = values.at("eps")[0];
  options.weight_decay = values.at("weight_decay")[0];
  options.amsgrad = values.at("amsgrad")[0] != 0;
  check_options(options);
  options_ = options;
}

void Adam::update(const std::vector<Update>& all) {
  kernels::AdamStep step;
  step.lr = lr();
  step.beta1 = options_.beta1;
  step.beta2 = options_.beta2;
  step.eps = options_.eps;
  step.weight_decay = options_.weight_decay;
  step.decoupled = decoupled_;
  // Consecutive parameters of one device, dtype and step count (usually all) share a kernel call.
  // Counts on the device may differ.
  const bool counts_there = device_counts().has_value();
  for (auto first = all.begin(); first != all.end();) {
    const auto last = std::find_if(first, all.end(), [&](const Update& u) {
      return u.param.options() != first->param.options() ||
             (!counts_there && u.steps != first->steps);
    });
    step.t = first->steps;
    const auto run = [&]<class T>(TypeTag<T>) {
      std::vector<kernels::AdamTensor<T>> tensors;
      for (auto u = first; u != last; ++u)
        tensors.push_back(
            {u->param.kernel_span<T>(), u->grad.kernel_span<T>(),
             state(kMean, u->i).kernel_span<T>(), state(kSquare, u->i).kernel_span<T>(),
             options_.amsgrad ? state(kLargest, u->i).kernel_span<T>() : std::span<T>{}});
      const std::span<const kernels::AdamTensor<T>> parameters(tensors);
      if (!counts_there) return kernels::adam_all(first->param.device(), parameters, step);
      std::vector<std::int32_t> which;
      for (auto u = first; u != last; ++u) which.push_back(static_cast<std::int32_t>(u->i));
      kernels::adam_clocked(first->param.device(), parameters, std::span<const std::int32_t>(which),
                            clocks_in(device_counts()->clocks),
                            device_counts()->lr.kernel_span<double>(), step);
    };
    first->param.dtype() == DType::f64 ? run(TypeTag<double>{}) : run(TypeTag<float>{});
    first = last;
  }
}

namespace {

void check_rate(const char* what, double lr) {
  require(std::isfinite(lr) && lr >= 0, std::string("schedule: ") + what +
                                            " must be finite and not negative, got " +
                                            std::to_string(lr));
}

}  // namespace

LrSchedule constant_lr(double lr) {
  check_rate("lr", lr);
  return [lr](std::int64_t) { return lr; };
}

LrSchedule warmup_lr(double peak, std::int64_t warmup) {
  check_rate("peak", peak);
  require(warmup >= 0, "schedule: warm-up must not be negative, got " + std::to_string(warmup));
  return [=](std::int64_t step) {
    if (step >= warmup) return peak;
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  };
}

LrSchedule cosine_lr(double peak, std::int64_t warmup, std::int64_t total, double floor) {
  check_rate("floor", floor);
  require(total > warmup, "schedule: " + std::to_string(total) + " steps leave nothing after a " +
                              "warm-up of " + std::to_string(warmup) +
                              "; train longer or warm up for fewer steps");
  return [=, rise = warmup_lr(peak, warmup)](std::int64_t step) {
    if (step < warmup) return rise(step);
    const double done =
        static_cast<double>(std::min(step, total) - warmup) / static_cast<double>(total - warmup);
    return floor + (peak - floor) * (1 + std::cos(std::numbers::pi * done)) / 2;
  };
}

LrSchedule step_lr(double lr, std::int64_t every, double gamma) {
  check_rate("lr", lr);
  check_rate("gamma", gamma);
  require(every >= 1, "schedule: a period must have at least 1 step, got " + std::to_string(every));
  return [=](std::int64_t step) {
    const std::int64_t period = step / every;
    return lr * std::pow(gamma, static_cast<double>(period));
  };
}

}  // namespace ringsmith
