#include "runtime/parallel/beyond/fsdp.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "runtime/parallel/agreement.hpp"
#include "runtime/parallel/beyond/fsdp_unit.hpp"
#include "runtime/parallel/beyond/sharded_state.hpp"
#include "runtime/parallel/broadcast_coalesced.hpp"

namespace ringsmith {

FullyShardedDataParallel::FullyShardedDataParallel(Module& module,
                                                   const std::vector<Module*>& units,
                                                   std::shared_ptr<comm::ProcessGroup> group,
                                                   const FsdpOptions& options)
    : module_(module),
      group_(std::move(group)),
      options_(options),
      overlap_(overlaps(options.overlap, *group_)) {
  const NamedTensors named = module.named_parameters();
  std::vector<std::size_t> unit_of(named.size(), 0);
  std::string fault;  // thrown when the ranks have compared theirs
  const auto note = [&](const std::string& what) {
    if (fault.empty()) fault = "FullyShardedDataParallel: " + what;
  };
  for (std::size_t u = 0; u <= units.size(); ++u) {
    units_.push_back(std::make_unique<FsdpUnit>());
    units_[u]->index = static_cast<int>(u);
    units_[u]->module = u == 0 ? &module : units[u - 1];
    if (u == 0) continue;
    if (units[u - 1] == nullptr || units[u - 1] == &module) {
      note(fmt::format("unit {} is {}; leave it out", u,
                       units[u - 1] == nullptr ? "null" : "the module itself"));
      continue;
    }
    const std::vector<Tensor> own = units[u - 1]->parameters();
    if (own.empty()) note(fmt::format("unit {} has no parameters; leave it out", u));
    for (const Tensor& p : own) {
      const auto found =
          std::ranges::find_if(named, [&](const auto& each) { return each.second.is_same(p); });
      if (found == named.end()) {
        note(fmt::format("unit {} is not a part of the module", u));
        continue;
      }
      std::size_t& owner = unit_of[static_cast<std::size_t>(found - named.begin())];
      if (owner != 0)
        note(
            fmt::format("parameter '{}' is in units {} and {}; put both modules into one unit, or "
                        "into none",
                        found->first, owner, u));
      owner = u;
    }
  }
  std::vector<std::string> lines;
  std::vector<Tensor> state = module.buffers();
  for (std::size_t i = 0; i < named.size(); ++i) {
    const auto& [name, p] = named[i];
    lines.push_back(describe_tensor(fmt::format("unit {}'s parameter", unit_of[i]), name, p));
    if (!p.requires_grad()) note("parameter '" + name + "' is frozen; unfreeze it");
    if (p.dtype() != DType::f32)
      note(fmt::format("parameter '{}' is {}; parameters must be f32", name, name_of(p.dtype())));
    if (p.device() != group_->device())
      note(
          fmt::format("parameter '{}' is on {}, the group on {}; make the group on the model's "
                      "device",
                      name, p.device().str(), group_->device().str()));
    FsdpUnit& unit = *units_[unit_of[i]];
    unit.names.push_back(name);
    unit.numbers.push_back(i);
    unit.parameters.push_back(p);
    state.push_back(p);
  }
  for (const auto& [name, t] : module.named_buffers())
    lines.push_back(describe_tensor("buffer", name, t));
  lines.push_back(fmt::format("options reshard_after_forward={} dtype={}",
                              options.reshard_after_forward, name_of(options.dtype)));
  if (!is_floating(options.dtype) || options.dtype == DType::f64)
    note(fmt::format("dtype {}; choose f32, bf16 or f16", name_of(options.dtype)));
  if (named.empty()) note("the module has no parameters");
  if (!fault.empty()) lines.push_back(fault);  // one rank's fault stops all ranks
  verify_same_model(*group_, lines);
  require(fault.empty(), fault);
  broadcast_coalesced(*group_, state, 0);
  std::vector<Tensor> parameters(named.size());  // of options.dtype
  for (const auto& each : units_) {
    FsdpUnit& unit = *each;
    unit.shard_over(*group_, options.dtype);
    for (const Tensor& p : unit.parameters)
      unit.hooks.push_back(register_post_accumulate_grad_hook(
          p, [this, &unit](const Tensor&) { on_gradient(unit); }, HookTurn::last));
    unit.module->wrap_calls([this, &unit](const Tensor& x) { return run(unit, x); });
    for (std::size_t p = 0; p < unit.parameters.size(); ++p)
      parameters[unit.numbers[p]] = unit.parameters[p];
  }
  module.rebind(parameters, module.buffers());
}

FullyShardedDataParallel::~FullyShardedDataParallel() {
  for (const auto& unit : units_) {
    unit->abandon();
    unit->module->wrap_calls({});
    for (std::size_t p = 0; p < unit->hooks.size(); ++p)
      remove_hook(unit->parameters[p], unit->hooks[p]);
  }
}

std::vector<Tensor> FullyShardedDataParallel::parameters() const {
  std::vector<Tensor> out;
  for (const auto& unit : units_)
    if (!unit->empty()) out.push_back(unit->shard);
  return out;
}

// ---- parameters come and go ----

// Waits for the unit's parameters, and starts to gather those of the next unit.
void FullyShardedDataParallel::gather(FsdpUnit& unit, int next) {
  unit.start_gather(*group_, overlap_);
  unit.wait_gathered();
  if (next > 0 && next < static_cast<int>(units_.size()))
    units_[static_cast<std::size_t>(next)]->start_gather(*group_, overlap_);
}

// ---- forward ----

Tensor FullyShardedDataParallel::run(FsdpUnit& unit, const Tensor& x) {
  const bool root = unit.index == 0, recorded = grad_enabled();
  require(whole_ == 0 || !recorded, "forward() inside whole() must be under NoGradGuard");
  if (whole_ > 0) return unit.module->forward(x);
  if (phase_ == FsdpPhase::backward && !root) {  // activation checkpointing runs the unit again
    gather(unit, 0);
    return unit.module->forward(x);
  }
  if (!root) {
    require(!recorded || phase_ == FsdpPhase::forward,
            "a unit of FullyShardedDataParallel was called outside of its forward(): call it from "
            "there, or under NoGradGuard");
    return run_gathered(unit, x);
  }
  if (phase_ == FsdpPhase::backward)
    throw Error(
        "the last backward() through FullyShardedDataParallel did not end: after an error "
        "in backward(), construct it again");
  require(!recorded || phase_ == FsdpPhase::idle,
          "FullyShardedDataParallel: forward() called again before the backward() of the last "
          "one: let them alternate, or evaluate under NoGradGuard");
  const FsdpPhase before = std::exchange(phase_, FsdpPhase::forward);
  try {
    Tensor y = run_gathered(unit, x);
    for (const auto& each : units_)
      if (!each->stays) each->free();  // a prefetched unit was not used
    phase_ = recorded ? FsdpPhase::armed : before;
    return y;
  } catch (...) {
    for (const auto& each : units_) each->abandon();
    phase_ = before;
    throw;
  }
}

Tensor FullyShardedDataParallel::run_gathered(FsdpUnit& unit, const Tensor& x) {
  gather(unit, phase_ == FsdpPhase::forward ? unit.index + 1 : 0);
  Tensor y = unit.module->forward(x);
  const bool recorded = grad_enabled();
  if (recorded && !options_.reshard_after_forward) unit.stays = true;
  if (!unit.stays) unit.free();
  if (!recorded) return y;
  // The last node of the unit's forward is the first of its backward.
  return record("FsdpUnitBackward", {y}, y.detach(), {}, [this, &unit](const Saved&, Tensor grad) {
    before_backward(unit);
    return std::vector<Tensor>{std::move(grad)};
  });
}

// ---- backward ----

void FullyShardedDataParallel::before_backward(FsdpUnit& unit) {
  require(phase_ == FsdpPhase::armed || phase_ == FsdpPhase::backward,
          "backward() through FullyShardedDataParallel without a forward(): call forward() before "
          "each backward(), once");
  if (phase_ == FsdpPhase::armed) {
    phase_ = FsdpPhase::backward;
    queue_backward_callback([this] { finish_backward(); });
  }
  const int last = static_cast<int>(units_.size()) - 1;
  gather(unit, unit.index == 0 ? last : unit.index - 1);
  unit.begin_backward();
}

void FullyShardedDataParallel::on_gradient(FsdpUnit& unit) {
  if (unit.backward.waiting == 0)
    throw UsageError("parameter '" + unit.names.front() +
                     "' or another of its unit got a gradient that FullyShardedDataParallel would "
                     "not reduce: call its forward() before each backward()");
  if (--unit.backward.waiting == 0) reduce(unit);
}

// One reduce-scatter at a time is in flight, so that at most two units have gradients.
void FullyShardedDataParallel::reduce(FsdpUnit& unit) {
  collect();
  unit.start_reduce(*group_, overlap_);
  reducing_ = &unit;
  if (!overlap_) collect();
}

void FullyShardedDataParallel::collect() {
  if (reducing_ != nullptr) std::exchange(reducing_, nullptr)->finish_reduce();
}

void FullyShardedDataParallel::finish_backward() {
  for (auto unit = units_.rbegin(); unit != units_.rend(); ++unit)
    if ((*unit)->backward.waiting > 0) reduce(**unit);  // some parameters have no gradient
  collect();
  for (const auto& unit : units_) unit->free();  // that backward has not reached
  phase_ = FsdpPhase::idle;
}

double FullyShardedDataParallel::clip_grad_norm(double max_norm) {
  std::vector<Tensor> gradients;
  for (const auto& unit : units_)
    if (!unit->empty() && unit->shard.grad().defined()) gradients.push_back(unit->shard.grad());
  return sharded::clip_norm(*group_, gradients, gradients, max_norm);
}

// ---- all parameters at the same time ----

void FullyShardedDataParallel::begin_whole() {
  if (whole_++ > 0) return;
  for (const auto& unit : units_) unit->start_gather(*group_, overlap_);
  for (const auto& unit : units_) unit->wait_gathered();
}

void FullyShardedDataParallel::end_whole() {
  if (--whole_ > 0) return;
  for (const auto& unit : units_)
    if (!unit->stays) unit->free();
}

Bytes FullyShardedDataParallel::parameter_bytes() const {
  Bytes out;
  for (const auto& unit : units_)
    if (!unit->empty())
      out += size_in_bytes(unit->shard) +
             Bytes(unit->has_memory() ? size_in_bytes(unit->flat).value : 0);
  return out;
}

}  // namespace ringsmith
