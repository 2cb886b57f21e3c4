// Caches schedules, plans and mappings by call, because training repeats a few calls.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "runtime/comm/executor/mapping.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

// The data that the executors need about one schedule, for one rank.
struct Prepared {
  Schedule schedule;
  Plan plan;
  std::size_t most_moves = 0;  // of the longest plan of any rank
  // Indexed by placement. If mapping_known is true and mapping is empty, the schedule has no
  // mapping.
  std::array<bool, 3> mapping_known{};
  std::array<std::optional<Mapping>, 3> mapping;
};

class ScheduleCache {
 public:
  // Returns the algorithm that a collective call runs (a name for make_schedule).
  using Choice = std::string_view (*)(const Call& call, int world);
  // node_of: [rank], as in schedule/schedule.hpp.
  ScheduleCache(int rank, int world, Choice choice, std::vector<int> node_of)
      : rank_(rank), world_(world), choice_(choice), node_of_(std::move(node_of)) {}

  // For a collective call (not barrier, send or recv). The result is valid until the next find().
  Prepared& find(const Call& call);
  // Returns the mapping, or nullptr if this schedule has none.
  const Mapping* mapping(Prepared& prepared, Placement placement) const;

 private:
  using Key = std::pair<std::uint64_t, std::uint64_t>;  // Call::pack(), count
  [[nodiscard]] Schedule make(const Call& call) const;

  int rank_, world_;
  Choice choice_;
  std::vector<int> node_of_;
  Key last_key_;
  Prepared* last_ = nullptr;
  std::map<Key, std::unique_ptr<Prepared>> prepared_;
};

// Returns the algorithm for host memory: the one that the call names, or else direct, in which
// every rank reaches every other rank in one step.
[[nodiscard]] std::string_view host_algorithm(const Call& call, int world);

}  // namespace ringsmith::comm
