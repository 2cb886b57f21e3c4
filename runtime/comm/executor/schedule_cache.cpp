#include "runtime/comm/executor/schedule_cache.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/select.hpp"

namespace ringsmith::comm {

namespace {

constexpr std::size_t kMostPrepared = 512;  // at this number, a new call drops all others

}  // namespace

Schedule ScheduleCache::make(const Call& call, Algorithm schedule) const {
  return make_schedule(call.collective, schedule, world_, call.work_count(world_),
                       size_of(call.dtype), call.root < 0 ? 0 : call.root, node_of_);
}

Prepared& ScheduleCache::find(const Call& call, Algorithm schedule) {
  const Key key{call.pack(), call.count, schedule};
  if (last_ != nullptr && key == last_key_) return *last_;
  last_ = nullptr;  // make() may throw after clear()
  auto found = prepared_.find(key);
  if (found == prepared_.end()) {
    if (prepared_.size() == kMostPrepared) prepared_.clear();
    auto prepared = std::make_unique<Prepared>();
    prepared->schedule = make(call, schedule);
    std::vector<Plan> plans = make_plans(prepared->schedule);
    for (const Plan& plan : plans)
      prepared->most_moves = std::max(prepared->most_moves, plan.size());
    prepared->plan = std::move(plans[static_cast<std::size_t>(rank_)]);
    found = prepared_.emplace(key, std::move(prepared)).first;
  }
  last_key_ = key;
  last_ = found->second.get();
  return *last_;
}

const Mapping* ScheduleCache::mapping(Prepared& prepared, Placement placement) const {
  const auto which = static_cast<std::size_t>(placement);
  if (!prepared.mapping_known[which]) {
    prepared.mapping_known[which] = true;
    auto all = make_mappings(prepared.schedule, make_plans(prepared.schedule), placement);
    if (all) prepared.mapping[which] = std::move((*all)[static_cast<std::size_t>(rank_)]);
  }
  return prepared.mapping[which] ? &*prepared.mapping[which] : nullptr;
}

}  // namespace ringsmith::comm
