// The command line of the measuring programs: nccl-tests' letters where they make sense without a
// GPU; the others are refused with the reason instead of being ignored.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/dtype.hpp"
#include "runtime/comm/process_group.hpp"

namespace ringsmith::apps {

struct Benchmark;

struct PerfOptions {
  std::size_t min_bytes = 0, max_bytes = 0, step_bytes = 0;
  double factor = 0;  // 0: add step_bytes
  int iterations = 20, warmup = 1, cycles = 1;
  double min_ms = 0;
  int check = 1;
  std::vector<comm::ReduceOp> ops;
  std::vector<DType> dtypes;
  std::vector<int> roots;  // empty: all
  comm::Algorithm algorithm = comm::Algorithm::automatic;
  bool fastest = false;  // the algorithm by size, as the cost model says
  bool own_memory = true;
  bool in_place = true, out_of_place = true;
  double timeout = 30;  // seconds
  comm::BootstrapKind bootstrap = comm::BootstrapKind::automatic;
  comm::Transport transport = comm::Transport::automatic;
  std::string interface;  // of tcp
  int sockets = 1;        // of tcp
  int ranks_per_node = 0;
  std::string flight_dir;
  std::string device = "cpu";
  comm::CudaEngine engine = comm::CudaEngine::automatic;
  int ranks_per_process = 1;
  bool bind = false, json = false, calibrate = false, statistics = false;
  std::string json_file;

  [[nodiscard]] std::vector<std::size_t> sizes() const;  // bytes, increasing
};

// False if --help was printed. UsageError for what is wrong.
[[nodiscard]] bool parse_perf_options(const Benchmark& benchmark, int argc, char** argv,
                                      PerfOptions& options);

}  // namespace ringsmith::apps
