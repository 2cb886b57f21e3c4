// Schedules, plans and mappings, computed once per kind of call and kept: a training run makes the
// same few calls over and over.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <utility>

#include "runtime/comm/executor/mapped.hpp"

namespace ringsmith::comm {

// What the executors need of one schedule, for one rank.
struct Prepared {
  Schedule schedule;
  Plan plan;
  // Indexed by "in place": not worked out yet, or worked out (and possibly none).
  std::array<bool, 2> mapping_known{};
  std::array<std::optional<Mapping>, 2> mapping;
};

class Library {
 public:
  Library(int rank, int world) : rank_(rank), world_(world) {}

  // For a collective call (not barrier, send or recv). Valid until the next find().
  Prepared& find(const Call& call);
  // The mapping, or nullptr if this schedule has none.
  const Mapping* mapping(Prepared& prepared, bool in_place) const;

 private:
  using Key = std::pair<std::uint64_t, std::uint64_t>;  // Call::pack(), count
  [[nodiscard]] Schedule make(const Call& call) const;

  int rank_, world_;
  Key last_key_;
  Prepared* last_ = nullptr;
  std::map<Key, std::unique_ptr<Prepared>> prepared_;
};

}  // namespace ringsmith::comm
