// The cost model's constants for this machine and its links: measured once (--calibrate) and kept
// in the user's cache, or else built-in values from other machines.
//
// The all-reduce itself is timed, at sizes between the powers of two, so that a table of powers of
// two tests the prediction at sizes that were not measured. Overhead and alpha come from an
// all-reduce of 64 bytes and a barrier, gamma from additions in one process, and beta from the rest
// of each time. Beta and gamma are curves over the size.
#pragma once

#include <functional>
#include <optional>

#include "runtime/analysis/cost.hpp"
#include "runtime/comm/process_group.hpp"

namespace ringsmith::apps {

// nodes: shared memory within a node, TCP between nodes.
enum class Links : std::uint8_t { shared_memory, tcp, rdma, nodes };

struct CalibrationKey {
  int world = 1;
  bool own_memory = true;
  comm::Algorithm algorithm = comm::Algorithm::automatic;
  Links links = Links::shared_memory;
  int nodes = 1;
  [[nodiscard]] std::string text() const;  // "2 ranks, own memory, automatic, 2 cores, <cpu>"
};

[[nodiscard]] std::string calibration_file();

// Returns the stored constants, or else the built-in ones, which do not cover RDMA. Never fails: an
// unreadable file counts as missing, and the origin says so.
[[nodiscard]] std::optional<comm::CostModel> load_cost_model(const CalibrationKey& key);

// Replaces this key's constants in the file. Throws UsageError naming an unwritable file, and Error
// if the disk is full.
void store_cost_model(const CalibrationKey& key, const comm::CostModel& model);
// Throws UsageError if the file cannot be written now.
void require_calibration_writable();

// Collective. time_all_reduce returns the seconds of one in-place all-reduce; progress receives a
// description of the current measurement.
[[nodiscard]] comm::CostModel calibrate(
    const CalibrationKey& key, comm::ProcessGroup& group,
    const std::function<double(std::size_t bytes)>& time_all_reduce,
    const std::function<void(const std::string&)>& progress);

// Returns seconds. bytes: size of a rank's longest buffer.
[[nodiscard]] double predict(const comm::CostModel& model, comm::Collective collective,
                             comm::Algorithm algorithm, int world, double bytes, int root,
                             const std::vector<int>& node_of);

// Collective. Makes the group's all-reduces run the algorithm that is fastest for their size
// according to rank 0's model, whose constants were fitted to the ring. Returns the choices.
std::vector<comm::SizedChoice> choose_fastest(comm::ProcessGroup& group,
                                              const comm::CostModel& model);
// As above, with the constants that load_cost_model() returns for communication memory. Throws
// UsageError if it returns none, or if the group is on a GPU.
void choose_fastest(comm::ProcessGroup& group);
[[nodiscard]] CalibrationKey key_for(const comm::ProcessGroup& group, bool own_memory,
                                     comm::Algorithm algorithm);

}  // namespace ringsmith::apps
