// The state of a sharded model and of its optimizer in two forms: whole, in the format of an
// unsharded run, and sharded, as each rank holds it.

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <utility>

#include "runtime/parallel/beyond/fsdp.hpp"
#include "runtime/parallel/beyond/fsdp_unit.hpp"
#include "runtime/parallel/beyond/sharded_state.hpp"

namespace ringsmith {

namespace {

// Keys of shards(): "state.0.values" has the values of unit 0's parameters.
const std::string kValues = "values", kBuffer = "buffer.";

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

// ---- state, whole ----

// Collective. The flat tensor of which each rank has a shard: parameters, or the optimizer's state.
Tensor FullyShardedDataParallel::whole_of(const FsdpUnit& unit, const Tensor& shard) const {
  require(shard.sizes() == unit.shard.sizes(),
          fmt::format("optimizer state of shape {} belongs to no shard: make the optimizer of "
                      "FullyShardedDataParallel::parameters()",
                      to_string(shard.sizes())));
  const Tensor all = Tensor::empty(unit.flat.sizes(), shard.options());
  group_->all_gather(sharded::buffer_of(shard), sharded::buffer_of(all));
  return all;
}

// The units that have a shard, in the order of parameters().
std::vector<FsdpUnit*> FullyShardedDataParallel::sharded_units() const {
  std::vector<FsdpUnit*> out;
  for (const auto& unit : units_)
    if (!unit->empty()) out.push_back(unit.get());
  return out;
}

StateDict FullyShardedDataParallel::state_dict() const {
  StateDict out = module_.state_dict();
  for (const FsdpUnit* unit : sharded_units()) {
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
  const std::vector<FsdpUnit*> units = sharded_units();
  StateDict out;
  std::size_t parameters = 0;
  for (const FsdpUnit* unit : units) parameters += unit->parameters.size();
  for (const auto& [key, value] : optimizer.state_dict()) {
    if (!sharded::is_state(key)) {
      out[key] = value;
      continue;
    }
    const auto [u, name] = sharded::parse_entry(key);
    const FsdpUnit& unit = *units.at(u);
    const Tensor all = name == "step" ? value : whole_of(unit, value);
    for (std::size_t p = 0; p < unit.parameters.size(); ++p)
      out[sharded::entry_of(unit.numbers[p], name)] = name == "step" ? all : unit.view_in(all, p);
  }
  out[sharded::kParams] = arange(static_cast<std::int64_t>(parameters));
  return out;
}

void FullyShardedDataParallel::load_state_dict(Optimizer& optimizer, const StateDict& state) const {
  struct ParameterPlace {
    const FsdpUnit* unit;
    std::size_t u, p;  // the unit's number, and the parameter's in the unit
  };
  const std::vector<FsdpUnit*> units = sharded_units();
  std::map<std::size_t, ParameterPlace> places;  // by number in the module
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
  const std::vector<FsdpUnit*> units = sharded_units();
  for (std::size_t u = 0; u < units.size(); ++u)
    out[sharded::entry_of(u, kValues)] = units[u]->shard.detach();
  for (const auto& [name, t] : module_.named_buffers()) out[kBuffer + name] = t;
  return out;
}

void FullyShardedDataParallel::load_shards(Optimizer& optimizer, int ranks,
                                           const std::function<StateDict(int rank)>& read) {
  const std::vector<FsdpUnit*> units = sharded_units();
  const auto begin_of = [&](const FsdpUnit& unit, int rank) {
    return rank * fsdp_shard_size(unit.elements(), ranks);
  };
  const auto overlaps_mine = [&](int rank) {
    return std::ranges::any_of(units, [&](const FsdpUnit* unit) {
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
      const std::int64_t size = u < units.size() ? fsdp_shard_size(units[u]->elements(), ranks) : 0;
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
