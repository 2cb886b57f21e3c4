// Caches schedules, plans and mappings by call, because a training run repeats a few calls.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <utility>

#include "runtime/comm/executor/mapping.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

struct Prepared {
  Schedule schedule;
  Plan plan;
  std::size_t most_moves = 0;  // of the longest plan of any rank
  // Both are indexed by placement. If a mapping is known but empty, the schedule has none.
  std::array<bool, 3> mapping_known{};
  std::array<std::optional<Mapping>, 3> mapping;
};

class ScheduleCache {
 public:
  // node_of: [rank], as in schedule/schedule.hpp.
  ScheduleCache(int rank, int world, std::vector<int> node_of)
      : rank_(rank), world_(world), node_of_(std::move(node_of)) {}

  // Prepares a collective call (not barrier, send or recv) unless it is cached. The schedule is a
  // part of the key, because equal calls may differ in it: select.cpp also looks at their buffers.
  // The result is valid until the next find().
  Prepared& find(const Call& call, Algorithm schedule);
  // Returns nullptr if the schedule has no mapping for this placement.
  const Mapping* mapping(Prepared& prepared, Placement placement) const;

 private:
  using Key = std::tuple<std::uint64_t, std::uint64_t, Algorithm>;  // Call::pack(), count
  [[nodiscard]] Schedule make(const Call& call, Algorithm schedule) const;

  int rank_, world_;
  std::vector<int> node_of_;
  Key last_key_;
  Prepared* last_ = nullptr;
  std::map<Key, std::unique_ptr<Prepared>> prepared_;
};

}  // namespace ringsmith::comm
