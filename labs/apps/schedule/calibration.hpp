// The cost model's constants for this machine and its links: measured once (--calibrate), kept in
// the user's cache, and otherwise shipped ones from another machine.
//
// Measured is the all-reduce itself at sizes that no table of powers of two contains, so that a
// prediction between them is one: the overhead and alpha from the smallest size and a barrier,
// gamma from adding in one process, and beta, as a curve over the size, from what then remains.
#pragma once

#include <functional>
#include <optional>

#include "runtime/comm/analysis/cost.hpp"
#include "runtime/comm/process_group.hpp"

namespace ringsmith::apps {

// What the ranks of a group reach each other by; nodes: shared memory within, TCP between them.
enum class Links : std::uint8_t { shared_memory, tcp, rdma, nodes };

// What the constants depend on.
struct CalibrationKey {
  int world = 1;
  bool own_memory = true;
  comm::Algorithm algorithm = comm::Algorithm::automatic;
  Links links = Links::shared_memory;
  int nodes = 1;
  [[nodiscard]] std::string text() const;  // "world 2, own memory, automatic, 2 cores, <cpu>"
};

[[nodiscard]] std::string calibration_file();

// The stored constants for this key on this machine, else shipped ones; for RDMA none are shipped.
// Never fails: an unreadable file counts as none, and the origin says so.
[[nodiscard]] std::optional<comm::CostModel> load_cost_model(const CalibrationKey& key);

// Replaces this key's constants in the file; UsageError naming the file if it cannot be written.
void store_cost_model(const CalibrationKey& key, const comm::CostModel& model);
// UsageError if it could not keep one now: to be called before minutes of measuring.
void require_calibration_writable();

// Collective: measures the constants. The seconds of one in-place all-reduce of so many bytes are
// asked from time_all_reduce; progress is told what is being measured.
[[nodiscard]] comm::CostModel calibrate(
    const CalibrationKey& key, comm::ProcessGroup& group,
    const std::function<double(std::size_t bytes)>& time_all_reduce,
    const std::function<void(const std::string&)>& progress);

// Seconds of the collective on `bytes` (the longest buffer of a rank).
[[nodiscard]] double predict(const comm::CostModel& model, comm::Collective collective,
                             comm::Algorithm algorithm, int world, double bytes, int root,
                             const std::vector<int>& node_of);

// Collective: from now on the group's all-reduces run what rank 0's model, of constants that were
// fitted to the ring, says is the fastest for their size. Returns what that is.
std::vector<comm::SizedChoice> choose_fastest(comm::ProcessGroup& group,
                                              const comm::CostModel& model);
// The same by the stored constants for communication memory; UsageError if there are none.
void choose_fastest(comm::ProcessGroup& group);
// Of this group.
[[nodiscard]] CalibrationKey key_for(const comm::ProcessGroup& group, bool own_memory,
                                     comm::Algorithm algorithm);

}  // namespace ringsmith::apps
