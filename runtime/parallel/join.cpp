#include "runtime/parallel/join.hpp"

#include <algorithm>
#include <array>
#include <fmt/core.h>

#include "runtime/parallel/agreement.hpp"

namespace ringsmith {

Join::Join(std::shared_ptr<comm::ProcessGroup> group, const JoinOptions& options)
    : group_(std::move(group)),
      options_(options),
      states_(static_cast<std::size_t>(group_->size()), will_reduce),
      authority_(group_->size() - 1) {}

void Join::announce(bool reduces) { exchange(reduces ? will_reduce : stays_local); }

bool Join::shadow() {
  exchange(has_run_out);
  return active() > 0;
}

int Join::active() const {
  return group_->size() - static_cast<int>(std::ranges::count(states_, has_run_out));
}

int Join::divisor() const {
  return options_.divide_by_initial_world_size ? group_->size() : active();
}

void Join::exchange(RankState mine) {
  const std::array<std::int64_t, 1> state{mine};
  group_->all_gather(std::span<const std::int64_t>(state), std::span<std::int64_t>(states_));
  const auto ranks_in = [&](RankState wanted) {
    std::vector<int> ranks;
    for (std::size_t r = 0; r < states_.size(); ++r)
      if (states_[r] == wanted) ranks.push_back(static_cast<int>(r));
    return ranks;
  };
  const std::vector<int> out = ranks_in(has_run_out), local = ranks_in(stays_local),
                         reducing = ranks_in(will_reduce);
  if (local.empty() && reducing.empty()) return;
  ++forwards_;
  if (!local.empty() && !reducing.empty())
    throw UsageError(
        fmt::format("join(): in forward {} {} would reduce and {} would not: use no_sync() in the "
                    "same steps on all ranks",
                    forwards_, describe_ranks(reducing, group_->size()),
                    describe_ranks(local, group_->size())));
  if (!out.empty() && options_.throw_on_early_termination)
    throw InputsExhausted(
        fmt::format("join(): {} ran out of inputs before forward {} (throw_on_early_termination)",
                    describe_ranks(out, group_->size()), forwards_));
  reduces_ = local.empty();
  authority_ = std::max(local.empty() ? -1 : local.back(), reducing.empty() ? -1 : reducing.back());
}

}  // namespace ringsmith
