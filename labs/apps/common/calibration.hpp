// The cost model's constants for this machine: measured once (--calibrate), kept in the user's
// cache, and otherwise shipped ones from another machine.
//
// Measured is the all-reduce itself at sizes that no table of powers of two contains, so that a
// prediction between them is one: the overhead and alpha from the smallest size and a barrier,
// gamma from adding in one process, and beta, as a curve over the size, from what then remains.
#pragma once

#include <functional>
#include <optional>

#include "runtime/comm/process_group.hpp"
#include "runtime/comm/schedule/cost.hpp"

namespace ringsmith::apps {

// What the constants depend on.
struct CalibrationKey {
  int world = 1;
  bool own_memory = true;
  comm::Algorithm algorithm = comm::Algorithm::automatic;
  [[nodiscard]] std::string text() const;  // "world 2, own memory, automatic, 2 cores, <cpu>"
};

[[nodiscard]] std::string calibration_file();

// The stored constants for this key on this machine, else shipped ones. Never fails: an unreadable
// file counts as none, and the origin says so.
[[nodiscard]] comm::CostModel load_cost_model(const CalibrationKey& key);

// Replaces this key's constants in the file; UsageError naming the file if it cannot be written.
void store_cost_model(const CalibrationKey& key, const comm::CostModel& model);

// Collective: measures the constants. The seconds of one in-place all-reduce of so many bytes are
// asked from time_all_reduce; progress is told what is being measured.
[[nodiscard]] comm::CostModel calibrate(
    const CalibrationKey& key, comm::ProcessGroup& group,
    const std::function<double(std::size_t bytes)>& time_all_reduce,
    const std::function<void(const std::string&)>& progress);

// Seconds of the collective on `bytes` (the longest buffer of a rank).
[[nodiscard]] double predict(const comm::CostModel& model, comm::Collective collective,
                             comm::Algorithm algorithm, int world, double bytes, int root);

}  // namespace ringsmith::apps
