#include "runtime/parallel/beyond/fsdp.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <utility>

#include "runtime/autograd/tensor_grad.hpp"
#include "runtime/base/tracer.hpp"
#include "runtime/parallel/agreement.hpp"
#include "runtime/parallel/beyond/sharded_state.hpp"
#include "runtime/parallel/broadcast_coalesced.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith {

namespace {

constexpr const char* kFreed =
    "FullyShardedDataParallel keeps a parameter only while its unit's forward or backward runs; "
    "call the unit as unit(x), from forward(), and read parameters inside whole()";

// Keys of shards(): "state.0.values" has the values of unit 0's parameters.
const std::string kValues = "values", kBuffer = "buffer.";

// Of a unit of n elements, each of `world` ranks keeps this many.
std::int64_t shard_size(std::int64_t n, std::int64_t world) { return (n + world - 1) / world; }

// Copies the elements that two ranges of a flat parameter have in common: `from` begins at element
// `at`, and `to` at element `to_at`.
void copy_common(const Tensor& from, std::int64_t at, const Tensor& to, std::int64_t to_at) {
  const std::int64_t low = std::max(at, to_at);
  const std::int64_t high = std::min(at + from.numel(), to_at + to.numel());
  if (low >= high) return;
  to.slice(0, low - to_at, high - to_at)
      .copy_(from.contiguous().view({-1}).slice(0, low - at, high - at));
}

}  // namespace

struct FullyShardedDataParallel::Unit {
  Module* module = nullptr;
  int index = 0;                       // 0: the root unit
  std::vector<std::string> names;      // of the parameters
  std::vector<std::size_t> numbers;    // of the parameters, in the module's named_parameters()
  std::vector<Tensor> parameters;      // views of flat
  std::vector<HookHandle> hooks;       // on the parameters
  Tensor flat;                         // padded; its storage has memory only while it is gathered
  Tensor shard;                        // this rank's part of flat
  std::int64_t begin = 0;              // of the shard in flat
  std::uint32_t gathered_version = 0;  // of the shard
  comm::WorkPtr gathering;             // in flight, if any
  bool stays = false;                  // gathered from forward to backward (ZeRO-2)
  // In backward:
  Tensor gradients;         // as flat; the parameters' .grad are views
  std::size_t waiting = 0;  // parameters whose gradient has not arrived
  Tensor average;           // of the gradients: this rank's part
  comm::WorkPtr reducing;

  [[nodiscard]] bool empty() const { return parameters.empty(); }
  [[nodiscard]] bool has_memory() const { return !empty() && !flat.storage()->is_released(); }
  [[nodiscard]] std::int64_t elements() const {
    return parameters.back().storage_offset() + parameters.back().numel();
  }
  [[nodiscard]] Tensor view_in(const Tensor& all, std::size_t p) const {
    const std::int64_t begin = parameters[p].storage_offset();
    return all.slice(0, begin, begin + parameters[p].numel()).view(parameters[p].sizes());
  }
  void shard_over(const comm::ProcessGroup& group);
};

// Replaces the parameters by views of a flat copy, keeps this rank's part, and frees the rest.
void FullyShardedDataParallel::Unit::shard_over(const comm::ProcessGroup& group) {
  if (empty()) return;
  std::int64_t n = 0;
  for (const Tensor& p : parameters) n += p.numel();
  const std::int64_t mine = shard_size(n, group.size()), all = mine * group.size();
  flat = Tensor::empty({all}, parameters.front().options());
  std::int64_t at = 0;
  for (const Tensor& p : parameters) {
    const Tensor place = flat.slice(0, at, at + p.numel()).view(p.sizes());
    place.copy_(p);
    p.set_data(place);
    at += p.numel();
  }
  flat.slice(0, n, all).zero_();
  begin = group.rank() * mine;
  shard = flat.slice(0, begin, begin + mine).clone();
  shard.requires_grad_();
  gathered_version = shard.version();
  flat.storage()->release(kFreed);
}

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
  std::string fault;  // thrown after the ranks have compared their models
  const auto note = [&](const std::string& what) {
    if (fault.empty()) fault = "FullyShardedDataParallel: " + what;
  };
  for (std::size_t u = 0; u <= units.size(); ++u) {
    units_.push_back(std::make_unique<Unit>());
    units_[u]->index = static_cast<int>(u);
    units_[u]->module = u == 0 ? &module : units[u - 1];
    if (u == 0) continue;
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
    Unit& unit = *units_[unit_of[i]];
    unit.names.push_back(name);
    unit.numbers.push_back(i);
    unit.parameters.push_back(p);
    state.push_back(p);
  }
  for (const auto& [name, t] : module.named_buffers())
    lines.push_back(describe_tensor("buffer", name, t));
  lines.push_back(fmt::format("options reshard_after_forward={}", options.reshard_after_forward));
  verify_same_model(*group_, lines);
  if (named.empty()) note("the module has no parameters");
  require(fault.empty(), fault);
  broadcast_coalesced(*group_, state, 0);
  for (const auto& each : units_) {
    Unit& unit = *each;
    unit.shard_over(*group_);
    for (const Tensor& p : unit.parameters)
      unit.hooks.push_back(register_post_accumulate_grad_hook(
          p, [this, &unit](const Tensor&) { on_gradient(unit); }, HookTurn::last));
    unit.module->wrap_calls([this, &unit](const Tensor& x) { return run(unit, x); });
  }
}

FullyShardedDataParallel::~FullyShardedDataParallel() {
  free_all();
  for (const auto& unit : units_) {
    unit->module->wrap_calls({});
    for (std::size_t p = 0; p < unit->parameters.size(); ++p) {
      remove_hook(unit->parameters[p], unit->hooks[p]);
      set_grad_target(unit->parameters[p], {});
    }
  }
}

std::vector<Tensor> FullyShardedDataParallel::parameters() const {
  std::vector<Tensor> out;
  for (const auto& unit : units_)
    if (!unit->empty()) out.push_back(unit->shard);
  return out;
}

// ---- parameters come and go ----

// Overlap decides only whether a call blocks: the order of the collectives is always the same.
void FullyShardedDataParallel::start_gather(Unit& unit) {
  if (unit.empty() || unit.has_memory()) return;
  unit.flat.storage()->restore();
  // Tensors that the graph has saved are stale if the optimizer has changed the shard since.
  if (std::exchange(unit.gathered_version, unit.shard.version()) != unit.shard.version())
    unit.flat.bump_version();
  const comm::Buffer shard = sharded::buffer_of(unit.shard), all = sharded::buffer_of(unit.flat);
  if (overlap_)
    unit.gathering = group_->all_gather_async(shard, all);
  else
    group_->all_gather(shard, all);
}

// Waits for the unit's parameters, and starts to gather those of the unit that is used next.
void FullyShardedDataParallel::gather(Unit& unit, int next) {
  start_gather(unit);
  if (unit.gathering) {
    const trace::Span waiting("wait for parameters", trace::Category::wait);
    std::exchange(unit.gathering, nullptr)->wait();
  }
  if (next > 0 && next < static_cast<int>(units_.size()))
    start_gather(*units_[static_cast<std::size_t>(next)]);
}

void FullyShardedDataParallel::free(Unit& unit) {
  if (unit.gathering) std::exchange(unit.gathering, nullptr)->wait();
  if (unit.has_memory()) unit.flat.storage()->release(kFreed);
  unit.stays = false;
}

// After an error, and at the end. Collectives in flight must end before their memory goes.
void FullyShardedDataParallel::free_all() {
  for (const auto& unit : units_) {
    for (const comm::WorkPtr& work : {unit->gathering, unit->reducing}) try {
        if (work) work->wait();
      } catch (const Error&) {  // reported elsewhere; here it only matters that the work has ended
        continue;
      }
    unit->gathering = unit->reducing = nullptr;
    unit->gradients = unit->average = Tensor();
    free(*unit);
  }
  reducing_ = nullptr;
}

// ---- forward ----

Tensor FullyShardedDataParallel::run(Unit& unit, const Tensor& x) {
  const bool root = unit.index == 0, recorded = grad_enabled();
  require(!whole_ || !recorded, "forward() inside whole() must be under NoGradGuard");
  // Activation checkpointing runs a unit again in its backward, where it has its parameters.
  if (whole_ || (phase_ == Phase::backward && !root)) return unit.module->forward(x);
  if (!root) {
    require(!recorded || phase_ == Phase::forward,
            "a unit of FullyShardedDataParallel was called outside of its forward(): call it from "
            "there, or under NoGradGuard");
    return run_gathered(unit, x);
  }
  if (phase_ == Phase::backward)
    throw Error(
        "the last backward() through FullyShardedDataParallel did not end: after an error "
        "in backward(), construct it again");
  require(!recorded || phase_ == Phase::idle,
          "FullyShardedDataParallel: forward() called again before the backward() of the last "
          "one: let them alternate, or evaluate under NoGradGuard");
  const Phase before = std::exchange(phase_, Phase::forward);
  try {
    Tensor y = run_gathered(unit, x);
    for (const auto& each : units_)
      if (!each->stays) free(*each);  // a prefetched unit was not used
    phase_ = recorded ? Phase::armed : before;
    return y;
  } catch (...) {
    free_all();
    phase_ = before;
    throw;
  }
}

Tensor FullyShardedDataParallel::run_gathered(Unit& unit, const Tensor& x) {
  gather(unit, phase_ == Phase::forward ? unit.index + 1 : 0);
  Tensor y = unit.module->forward(x);
  const bool recorded = grad_enabled();
  if (recorded && !options_.reshard_after_forward) unit.stays = true;
  if (!unit.stays) free(unit);
  if (!recorded) return y;
  // The last node of the unit's forward is the first of its backward.
  return record("FsdpUnitBackward", {y}, y.detach(), {}, [this, &unit](const Saved&, Tensor grad) {
    before_backward(unit);
    return std::vector<Tensor>{std::move(grad)};
  });
}

// ---- backward ----

void FullyShardedDataParallel::before_backward(Unit& unit) {
  require(phase_ == Phase::armed || phase_ == Phase::backward,
          "backward() through FullyShardedDataParallel without a forward(): call forward() before "
          "each backward(), once");
  if (phase_ == Phase::armed) {
    phase_ = Phase::backward;
    queue_backward_callback([this] { finish_backward(); });
  }
  const int last = static_cast<int>(units_.size()) - 1;
  gather(unit, unit.index == 0 ? last : unit.index - 1);
  if (unit.empty() || unit.gradients.defined()) return;  // it is used twice
  unit.gradients = empty_like(unit.flat);
  unit.waiting = unit.parameters.size();
  for (std::size_t p = 0; p < unit.parameters.size(); ++p)
    set_grad_target(unit.parameters[p], unit.view_in(unit.gradients, p));
}

void FullyShardedDataParallel::on_gradient(Unit& unit) {
  if (phase_ != Phase::backward || !unit.gradients.defined())
    throw UsageError("parameter '" + unit.names.front() +
                     "' or another of its unit got a gradient that FullyShardedDataParallel would "
                     "not reduce: call its forward() before each backward()");
  if (--unit.waiting == 0) reduce(unit);
}

void FullyShardedDataParallel::reduce(Unit& unit) {
  free(unit);  // all nodes that use the parameters have run
  for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
    const Tensor& parameter = unit.parameters[p];
    const Tensor grad = parameter.grad(), place = unit.view_in(unit.gradients, p);
    if (!grad.defined())
      place.zero_();
    else if (data_of(grad) != data_of(place))
      place.copy_(grad);
    parameter.set_grad({});
    set_grad_target(parameter, {});
  }
  unit.waiting = 0;
  unit.gradients.slice(0, unit.elements(), unit.gradients.numel()).zero_();
  collect();
  unit.average = empty_like(unit.shard);
  const comm::Buffer all = sharded::buffer_of(unit.gradients),
                     part = sharded::buffer_of(unit.average);
  if (overlap_)
    unit.reducing = group_->reduce_scatter_async(all, part, comm::ReduceOp::avg);
  else
    group_->reduce_scatter(all, part, comm::ReduceOp::avg);
  reducing_ = &unit;
  if (!overlap_) collect();
}

// Ends the reduce-scatter in flight and adds its result to the shard's .grad.
void FullyShardedDataParallel::collect() {
  if (reducing_ == nullptr) return;
  Unit& unit = *std::exchange(reducing_, nullptr);
  if (unit.reducing) {
    const trace::Span waiting("wait for gradients", trace::Category::wait);
    std::exchange(unit.reducing, nullptr)->wait();
  }
  const Tensor average = std::exchange(unit.average, Tensor());
  unit.gradients = Tensor();
  if (const Tensor grad = unit.shard.grad(); grad.defined())
    raw::add_into(grad, average);
  else
    unit.shard.set_grad(average);
}

void FullyShardedDataParallel::finish_backward() {
  for (auto unit = units_.rbegin(); unit != units_.rend(); ++unit)
    if ((*unit)->waiting > 0) reduce(**unit);  // some parameters have no gradient
  collect();
  for (const auto& unit : units_) free(*unit);  // that backward has not reached
  phase_ = Phase::idle;
}

double FullyShardedDataParallel::clip_grad_norm(double max_norm) {
  std::vector<Tensor> gradients;
  for (const auto& unit : units_)
    if (!unit->empty() && unit->shard.grad().defined()) gradients.push_back(unit->shard.grad());
  return sharded::clip_norm(*group_, gradients, gradients, max_norm);
}

// ---- all parameters at the same time ----

void FullyShardedDataParallel::begin_whole() {
  require(phase_ == Phase::idle && !whole_,
          "whole() must not be called between forward() and backward(), or inside of whole()");
  for (const auto& unit : units_) start_gather(*unit);
  for (const auto& unit : units_) gather(*unit, 0);
  whole_ = true;
}

void FullyShardedDataParallel::end_whole() {
  for (const auto& unit : units_) free(*unit);
  whole_ = false;
}

Bytes FullyShardedDataParallel::parameter_bytes() const {
  Bytes out;
  for (const auto& unit : units_)
    if (!unit->empty())
      out += size_in_bytes(unit->shard) +
             Bytes(unit->has_memory() ? size_in_bytes(unit->flat).value : 0);
  return out;
}

// ---- state, whole ----

// Collective. The flat tensor of which each rank has a shard: parameters, or the optimizer's state.
Tensor FullyShardedDataParallel::whole_of(const Unit& unit, const Tensor& shard) const {
  require(shard.sizes() == unit.shard.sizes(),
          fmt::format("optimizer state of shape {} belongs to no shard: make the optimizer of "
                      "FullyShardedDataParallel::parameters()",
                      to_string(shard.sizes())));
  const Tensor all = Tensor::empty(unit.flat.sizes(), shard.options());
  group_->all_gather(sharded::buffer_of(shard), sharded::buffer_of(all));
  return all;
}

// The units that have a shard, in the order of parameters().
std::vector<FullyShardedDataParallel::Unit*> FullyShardedDataParallel::sharded_units() const {
  std::vector<Unit*> out;
  for (const auto& unit : units_)
    if (!unit->empty()) out.push_back(unit.get());
  return out;
}

StateDict FullyShardedDataParallel::state_dict() const {
  StateDict out = module_.state_dict();
  for (const Unit* unit : sharded_units()) {
    const Tensor all = whole_of(*unit, unit->shard.detach());
    for (auto& [name, t] : out)
      if (t.storage() == unit->flat.storage())
        t = all.slice(0, t.storage_offset(), t.storage_offset() + t.numel()).view(t.sizes());
  }
  return out;
}

void FullyShardedDataParallel::load_state_dict(const StateDict& state) {
  module_.require_fits(state);
  for (const auto& [name, t] : module_.state_dict()) {
    const auto owner = std::ranges::find_if(units_, [&, &t = t](const auto& u) {
      return !u->empty() && u->flat.storage() == t.storage();
    });
    if (owner == units_.end())
      t.copy_(state.at(name));  // a buffer
    else
      copy_common(state.at(name), t.storage_offset(), (*owner)->shard, (*owner)->begin);
  }
}

StateDict FullyShardedDataParallel::state_dict(const Optimizer& optimizer) const {
  const std::vector<Unit*> units = sharded_units();
  StateDict out;
  std::size_t parameters = 0;
  for (const Unit* unit : units) parameters += unit->parameters.size();
  for (const auto& [key, value] : optimizer.state_dict()) {
    if (!sharded::is_state(key)) {
      out[key] = value;
      continue;
    }
    const auto [u, name] = sharded::parse_entry(key);
    const Unit& unit = *units.at(u);
    const Tensor all = name == "step" ? value : whole_of(unit, value);
    for (std::size_t p = 0; p < unit.parameters.size(); ++p)
      out[sharded::entry_of(unit.numbers[p], name)] = name == "step" ? all : unit.view_in(all, p);
  }
  out[sharded::kParams] = arange(static_cast<std::int64_t>(parameters));
  return out;
}

void FullyShardedDataParallel::load_state_dict(Optimizer& optimizer, const StateDict& state) const {
  struct Place {
    const Unit* unit;
    std::size_t u, p;  // the unit's number, and the parameter's in the unit
  };
  const std::vector<Unit*> units = sharded_units();
  std::map<std::size_t, Place> places;  // by number in the module
  for (std::size_t u = 0; u < units.size(); ++u)
    for (std::size_t p = 0; p < units[u]->numbers.size(); ++p)
      places[units[u]->numbers[p]] = {units[u], u, p};
  check_optimizer_state(state);
  StateDict mine;
  for (const auto& [key, value] : state) {
    if (!sharded::is_state(key)) {
      mine[key] = value;
      continue;
    }
    const auto [number, name] = sharded::parse_entry(key);
    const auto place = places.find(number);
    if (place == places.end()) sharded::refuse_state("'" + key + "' belongs to no parameter");
    const auto& [unit, u, p] = place->second;
    Tensor& to = mine[sharded::entry_of(u, name)];
    if (name == "step") {
      if (to.defined() && to.to_vector<std::int64_t>() != value.to_vector<std::int64_t>())
        sharded::refuse_state("'" + key + "' differs from the steps of the rest of its unit");
      to = value;
      continue;
    }
    if (value.sizes() != unit->parameters[p].sizes())
      sharded::refuse_state(fmt::format("'{}' is {}, its parameter is {}", key,
                                        to_string(value.sizes()),
                                        to_string(unit->parameters[p].sizes())));
    if (!to.defined()) to = zeros_like(unit->shard);
    copy_common(value, unit->parameters[p].storage_offset(), to, unit->begin);
  }
  const Tensor numbers = std::exchange(mine[sharded::kParams], arange(std::ssize(units)));
  if (!numbers.defined() || numbers.numel() != std::ssize(places))
    sharded::refuse_state(fmt::format("it is not of {} parameters", places.size()));
  optimizer.load_state_dict(mine);
}

// ---- state, sharded ----

StateDict FullyShardedDataParallel::shards(const Optimizer& optimizer) const {
  StateDict out = optimizer.state_dict();
  const std::vector<Unit*> units = sharded_units();
  for (std::size_t u = 0; u < units.size(); ++u)
    out[sharded::entry_of(u, kValues)] = units[u]->shard.detach();
  for (const auto& [name, t] : module_.named_buffers()) out[kBuffer + name] = t;
  return out;
}

void FullyShardedDataParallel::load_shards(Optimizer& optimizer, int ranks,
                                           const std::function<StateDict(int rank)>& read) {
  const std::vector<Unit*> units = sharded_units();
  const auto begin_of = [&](const Unit& unit, int rank) {
    return rank * shard_size(unit.elements(), ranks);
  };
  const auto overlaps_mine = [&](int rank) {
    return std::ranges::any_of(units, [&](const Unit* unit) {
      return begin_of(*unit, rank) < unit->begin + unit->shard.numel() &&
             begin_of(*unit, rank + 1) > unit->begin;
    });
  };
  StateDict mine, values;
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank > 0 && !overlaps_mine(rank)) continue;
    std::size_t found = 0;
    for (const auto& [key, value] : read(rank)) {
      if (!sharded::is_state(key) || key.ends_with(".step")) {
        mine[key] = value;
        continue;
      }
      const auto [u, name] = sharded::parse_entry(key);
      const std::int64_t size = u < units.size() ? shard_size(units[u]->elements(), ranks) : 0;
      if (value.numel() != size)
        sharded::refuse_state(
            fmt::format("'{}' of rank {} has {} elements, not {}: the shards are "
                        "of other units or another number of ranks",
                        key, rank, value.numel(), size));
      if (name == kValues) ++found;
      Tensor& to = (name == kValues ? values : mine)[key];
      if (!to.defined()) to = zeros_like(units[u]->shard);
      copy_common(value, begin_of(*units[u], rank), to, units[u]->begin);
    }
    if (found != units.size())
      sharded::refuse_state(fmt::format("rank {} has shards of {} units, this model has {}", rank,
                                        found, units.size()));
  }
  for (const auto& [name, t] : module_.named_buffers())
    if (const auto entry = mine.extract(kBuffer + name)) t.copy_(entry.mapped());
  optimizer.load_state_dict(mine);
  for (std::size_t u = 0; u < units.size(); ++u)
    units[u]->shard.copy_(values.at(sharded::entry_of(u, kValues)));
}

}  // namespace ringsmith
