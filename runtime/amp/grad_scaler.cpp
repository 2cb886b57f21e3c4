#include "runtime/amp/grad_scaler.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <string>
#include <utility>

#include "kernels/optim.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/base/error.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith {

namespace {

// The inverse of a much smaller scale would overflow.
constexpr double kLeast = std::numeric_limits<float>::min();
constexpr double kMost = std::numeric_limits<float>::max();

void check_scale(double scale) {
  require(
      scale >= kLeast && scale <= kMost,
      fmt::format("GradScaler: the scale must be from {:.2g} to {:.2g} (the range of f32), got {}",
                  kLeast, kMost, scale));
}

void check_scaler_options(const GradScalerOptions& o) {
  const auto fail = [](const std::string& what) { throw UsageError("GradScaler: " + what); };
  check_scale(o.init_scale);
  if (!(std::isfinite(o.growth_factor) && o.growth_factor > 1))
    fail(fmt::format("growth_factor must be above 1, got {}", o.growth_factor));
  if (!(o.backoff_factor > 0 && o.backoff_factor < 1))
    fail(fmt::format("backoff_factor must be between 0 and 1, got {}", o.backoff_factor));
  if (o.growth_interval < 1)
    fail("growth_interval must be at least 1 step, got " + std::to_string(o.growth_interval));
}

// Multiplies the gradients by `inverse`. Returns true if any element is infinite or NaN.
bool unscale(const std::vector<Tensor>& gradients, float inverse) {
  std::map<int, Tensor> found;  // by device, -1 for the CPU
  for (const Tensor& grad : gradients) {
    require(grad.dtype() == DType::f32 || grad.dtype() == DType::f64,
            "GradScaler: a gradient is " + std::string(name_of(grad.dtype())) +
                ", and dividing it by the scale would round it to zero again: keep parameters in "
                "f32 and compute in 16 bits under Autocast");
    require(grad.is_contiguous(),
            "GradScaler: a gradient is not contiguous: set it to its contiguous()");
    const Device device = grad.device();
    Tensor& flag = found[device.is_cpu() ? -1 : device.index];
    if (!flag.defined()) flag = zeros({1}, {DType::i32, device});
    raw::visit_arithmetic(grad.dtype(), "unscale_", [&]<class T>(TypeTag<T>) {
      kernels::unscale(device, grad.kernel_span<T>(), inverse, flag.kernel_span<std::int32_t>());
    });
    grad.bump_version();
  }
  bool bad = false;
  for (const auto& [device, flag] : found) bad = flag.item<std::int32_t>() != 0 || bad;
  return bad;
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions options)
    : options_(std::move(options)), scale_(static_cast<float>(options_.init_scale)) {
  check_scaler_options(options_);
}

void GradScaler::require_scale(const char* call) const {
  require(scaled_, std::string("GradScaler: ") + call +
                       " before scale(): call scale(loss).backward() first in each step");
}

Tensor GradScaler::scale(const Tensor& loss) {
  if (!options_.enabled) return loss;
  require(loss.defined() && is_floating(loss.dtype()),
          "GradScaler: scale() takes a loss of floating dtype");
  if (!scaled_) set_loss_scale(reachable_leaves({loss}), scale_);  // later, begin_step() does this
  scaled_ = true;
  return mul(is_half(loss.dtype()) ? to(loss, DType::f32) : loss, double{scale_});
}

void GradScaler::unscale_(Optimizer& optimizer) {
  if (!options_.enabled) return;
  require_scale("unscale_()");
  const Stage stage = seen_[&optimizer].stage;
  require(stage != Stage::unscaled,
          "GradScaler: unscale_() called twice for this optimizer since the last update(): its "
          "gradients would be divided twice; call it once, before clipping");
  require(stage != Stage::stepped,
          "GradScaler: unscale_() after step() of this optimizer: call it before, or update() "
          "first");
  const auto inverse = static_cast<float>(1 / double{scale_});
  const bool found_here = optimizer.any_rank(unscale(optimizer.gradients(), inverse));
  const bool found = options_.any_rank ? options_.any_rank(found_here) : found_here;
  const bool any =
      std::ranges::any_of(optimizer.params(), [](const Tensor& p) { return p.grad().defined(); });
  require(any || options_.any_rank,
          "GradScaler: no parameter of this optimizer has a gradient: call scale(loss).backward() "
          "before unscale_() and step()");
  seen_[&optimizer] = {Stage::unscaled, found, optimizer.params()};
}

bool GradScaler::step(Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.step();
    return true;
  }
  require_scale("step()");
  require(seen_[&optimizer].stage != Stage::stepped,
          "GradScaler: step() called twice for this optimizer since the last update(): call "
          "update() at the end of each step");
  if (seen_[&optimizer].stage == Stage::ready) unscale_(optimizer);
  Seen& seen = seen_[&optimizer];
  seen.found_inf ? optimizer.skip() : optimizer.step();
  seen.stage = Stage::stepped;
  return !seen.found_inf;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  require_scale("update()");
  bool any = false, found = false;
  for (const auto& [optimizer, seen] : seen_) {
    any = any || seen.stage != Stage::ready;
    found = found || seen.found_inf;
  }
  require(any,
          "GradScaler: update() without a step() since the last update(): no gradient has been "
          "checked; call step(optimizer) first");
  if (found) {
    scale_ = static_cast<float>(double{scale_} * options_.backoff_factor);
    growth_tracker_ = 0;
    if (double{scale_} < kLeast)
      throw Error(
          "GradScaler: the scale has fallen to 0: gradients are infinite or NaN at any scale, so "
          "the cause is elsewhere; look at the loss, or lower the learning rate");
  } else if (++growth_tracker_ == options_.growth_interval) {
    const auto grown = static_cast<float>(double{scale_} * options_.growth_factor);
    if (std::isfinite(grown)) scale_ = grown;
    growth_tracker_ = 0;
  }
  begin_step();
}

void GradScaler::begin_step() {
  for (const auto& [optimizer, seen] : seen_) set_loss_scale(seen.params, scale_);
  seen_.clear();
}

void GradScaler::update(double new_scale) {
  if (!options_.enabled) return;
  check_scale(new_scale);
  scale_ = static_cast<float>(new_scale);
  begin_step();
}

// ---- state: PyTorch's names ----

StateDict GradScaler::state_dict() const {
  if (!options_.enabled) return {};
  const auto number = [](std::int64_t n) { return scalar(static_cast<double>(n), DType::i64); };
  return {{"scale", scalar(double{scale_})},
          {"growth_factor", scalar(options_.growth_factor, DType::f64)},
          {"backoff_factor", scalar(options_.backoff_factor, DType::f64)},
          {"growth_interval", number(options_.growth_interval)},
          {"_growth_tracker", number(growth_tracker_)}};
}

void GradScaler::load_state_dict(const StateDict& state) {
  if (!options_.enabled) return;
  const auto fail = [](const std::string& what) {
    throw UsageError("GradScaler state does not fit: " + what);
  };
  if (state.empty())
    fail("it is the empty state of a scaler that was not enabled: start with a new scaler");
  const StateDict own = state_dict();
  for (const auto& [name, tensor] : state)
    if (own.count(name) == 0) fail("'" + name + "' is not an entry of a GradScaler");
  std::map<std::string, double> values;
  for (const auto& [name, mine] : own) {
    const auto at = state.find(name);
    if (at == state.end()) fail("'" + name + "' is missing");
    if (at->second.numel() != 1 || at->second.dtype() != mine.dtype())
      fail("'" + name + "' must be one " + std::string(name_of(mine.dtype())) + ", got " +
           std::string(name_of(at->second.dtype())) + " " + to_string(at->second.sizes()));
    values[name] = at->second.to(DType::f64).item<double>();
  }
  GradScalerOptions loaded = options_;
  loaded.init_scale = values["scale"];
  loaded.growth_factor = values["growth_factor"];
  loaded.backoff_factor = values["backoff_factor"];
  loaded.growth_interval = static_cast<std::int64_t>(values["growth_interval"]);
  check_scaler_options(loaded);
  const auto tracker = static_cast<std::int64_t>(values["_growth_tracker"]);
  if (tracker < 0) fail("'_growth_tracker' is negative");
  options_ = std::move(loaded);
  scale_ = static_cast<float>(options_.init_scale);
  growth_tracker_ = tracker;
}

}  // namespace ringsmith
