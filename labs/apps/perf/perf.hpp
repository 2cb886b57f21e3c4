// The measuring programs (all_reduce_perf and its siblings), in the style of nccl-tests.
//
// programs.cpp describes the collective of each program (Benchmark); the programs share everything
// else.
//
//     time    microseconds: the median over iterations of the slowest rank's time
//     algbw   size / time;   busbw = algbw times a factor per collective (2 (n-1)/n for
//             all_reduce) that makes it comparable with the speed of a link for any n
//     #wrong  wrong elements (data.hpp) plus changed guard bytes, summed over all ranks
#pragma once

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "labs/apps/common/job.hpp"
#include "labs/apps/perf/data.hpp"
#include "runtime/analysis/cost.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/comm/process_group.hpp"
#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::apps {

struct Call {
  comm::ProcessGroup& group;
  comm::ConstBuffer in;
  comm::Buffer out;
  comm::ReduceOp op;
  int root;
};

// Element i of the result on this rank.
struct Element {
  int rank, world;
  std::size_t part;
  int root;
  std::size_t i;
};

struct Benchmark {
  const char* name;
  const char* description;
  std::optional<comm::Collective> collective =
      {};  // for the prediction; empty if it has no schedule
  double (*bus_factor)(double world);
  void (*run)(const Call&);
  Expected (*expected)(const Element&);  // the value of that element
  bool out_of_place = true, in_place = true;
  int least_world = 1;

  [[nodiscard]] comm::Contract contract() const {
    return collective ? comm::contract_of(*collective)
                      : comm::Contract{name, comm::Extent::all, comm::Extent::all};
  }
  // Lengths in units of `part` elements; the table's size is the longer of the two.
  [[nodiscard]] std::size_t input_parts(int world) const { return parts(contract().input, world); }
  [[nodiscard]] std::size_t output_parts(int world) const {
    return parts(contract().output, world);
  }
  [[nodiscard]] std::size_t parts(int world) const {
    return std::max(input_parts(world), output_parts(world));
  }

 private:
  [[nodiscard]] std::size_t parts(comm::Extent extent, int world) const {
    const bool many = contract().divides() || contract().exchanges;
    return many && extent != comm::Extent::own ? static_cast<std::size_t>(world) : 1;
  }
};

// The options use nccl-tests' letters where they make sense here. nccl-tests' other options are
// rejected with a reason.
struct PerfOptions : JobOptions {
  std::size_t min_bytes = 0, max_bytes = 0, step_bytes = 0;
  double factor = 0;  // 0: add step_bytes
  int iterations = 20, warmup = 1, cycles = 1;
  double min_ms = 0;
  int check = 1;
  std::vector<comm::ReduceOp> ops;
  std::vector<DType> dtypes;
  std::vector<int> roots;  // empty: all
  comm::Algorithm algorithm = comm::Algorithm::automatic;
  bool fastest = false;  // choose the algorithm by size, using the cost model
  std::string schedule;  // a custom all-reduce that replaces the ring; empty: none
  bool own_memory = true;
  bool in_place = true, out_of_place = true;
  std::string device = "cpu";
  comm::CudaEngine engine = comm::CudaEngine::automatic;
  int ranks_per_process = 1;
  bool bind = false, json = false, calibrate = false, statistics = false;
  std::string json_file;

  [[nodiscard]] std::vector<std::size_t> sizes() const;  // bytes, increasing
};

[[nodiscard]] bool parse_perf_options(const Benchmark& benchmark, int argc, char** argv,
                                      PerfOptions& options);

// One or two blocks of the requested kind, on the host or the group's device, each with room for
// guard bytes on both sides. With one block, second() is first().
class PerfMemory {
 public:
  PerfMemory(comm::ProcessGroup& group, bool own, std::size_t bytes, bool two);
  [[nodiscard]] std::byte* first() const { return first_ + kGuard; }
  [[nodiscard]] std::byte* second() const { return second_ + kGuard; }
  static constexpr std::size_t kGuard = 64;  // bytes

 private:
  std::byte* make(comm::ProcessGroup& group, bool own, std::size_t bytes);
  std::vector<std::shared_ptr<void>> keep_;
  std::byte *first_ = nullptr, *second_ = nullptr;
};

struct Shape {
  std::size_t part = 0;  // elements
  DType dtype = DType::f32;
  comm::ReduceOp op = comm::ReduceOp::sum;
  int root = 0;
};

[[nodiscard]] std::size_t bytes_of_shape(const Benchmark& benchmark, const Shape& shape, int world);

struct Measurement {
  double time = 0, avg = 0, min = 0, max = 0, p99 = 0;  // microseconds
  double cv = 0;                                        // standard deviation / mean, percent
  double algbw = 0, busbw = 0;                          // GB/s
  int iterations = 0;
  std::int64_t wrong = -1;  // -1: not checked
};

// Collective; returns the same numbers on every rank. With options.check, verifies the results
// before and after the timing.
[[nodiscard]] Measurement measure(const Benchmark& benchmark, const PerfOptions& options,
                                  comm::ProcessGroup& group, const PerfMemory& memory,
                                  const Shape& shape, bool in_place);

class PerfReport {
 public:
  PerfReport(const Benchmark& benchmark, const PerfOptions& options, comm::ProcessGroup& group);
  ~PerfReport();

  // Collective; only rank 0 prints. model: origin of the cost model; empty: no predictions.
  void header(const std::string& model, const std::vector<comm::SizedChoice>& choices = {});
  // out, in: null if the measurement was not requested.
  void row(const Shape& shape, const Measurement* out, const Measurement* in, double predicted);
  int footer();  // the exit code

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    if (!table_) return;
    fmt::print(format, std::forward<Args>(args)...);
    fmt::print("\n");
    std::fflush(stdout);
  }
  void ranks();

  const Benchmark& benchmark_;
  const PerfOptions& options_;
  comm::ProcessGroup& group_;
  bool table_ = false;
  bool predicted_ = false;
  std::unique_ptr<nlohmann::json> json_;  // a pointer, so that json_fwd.hpp is enough here
  std::int64_t wrong_ = 0;
  double busbw_ = 0;
  int measured_ = 0;
};

int run_benchmark(const Benchmark& benchmark, int argc, char** argv);
int run_benchmark(std::string_view name, int argc, char** argv);

}  // namespace ringsmith::apps
