#include "labs/apps/common/perf.hpp"

#include <array>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sched.h>
#include <thread>
#include <unistd.h>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/calibration.hpp"
#include "labs/apps/common/perf_options.hpp"
#include "labs/apps/common/perf_timing.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/bootstrap/place.hpp"

namespace ringsmith::apps {

using comm::ProcessGroup;
using nlohmann::json;

namespace {

// Before the process group exists, so that it sees which cores its ranks may use.
void pin_to_core() {
  const int rank = comm::local_rank_hint();
  cpu_set_t allowed, one;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  const int cores = CPU_COUNT(&allowed);
  CPU_ZERO(&one);
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && seen++ == rank % cores) CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof one, &one);
}

class Report {
 public:
  Report(const Benchmark& benchmark, const PerfOptions& options, ProcessGroup& group)
      : benchmark_(benchmark), options_(options), group_(group) {
    table_ = group.rank() == 0 && !options.json;
  }

  void header(const std::string& model) {
    json_ = {{"program", benchmark_.name},
             {"version", RINGSMITH_VERSION},
             {"ranks", group_.size()},
             {"memory", options_.own_memory ? "own" : "user"},
             {"algorithm", std::string(name_of(options_.algorithm))},
             {"cost_model", model},
             {"started", std::time(nullptr)},
             {"results", json::array()}};
    line("# {}, ringsmith {}", benchmark_.name, RINGSMITH_VERSION);
    line(
        "# ranks {} minBytes {} maxBytes {} step: {} warmup iters: {} iters: {} validation: {} "
        "memory: {} algorithm: {} timeout: {} s bind: {}",
        group_.size(), options_.min_bytes, options_.max_bytes,
        options_.factor > 0 ? fmt::format("{}(factor)", options_.factor)
                            : fmt::format("{}(bytes)", options_.step_bytes),
        options_.warmup, options_.iterations, options_.check, options_.own_memory ? "own" : "user",
        name_of(options_.algorithm), options_.timeout, options_.bind ? 1 : 0);
    ranks();
    line("# predicted by the alpha-beta-gamma model, {}", model);
    if (group_.size() == 1)
      line("# one rank alone: nothing is communicated, busbw is 0 by definition");
    const bool both = options_.out_of_place && options_.in_place;
    const int width = 43 + (options_.statistics ? 36 : 0);
    line("#");
    line("# {:>47} {:^{}}{}", "", options_.out_of_place ? "out-of-place" : "in-place", width,
         both ? fmt::format(" {:^{}}", "in-place", width) : "");
    std::string names =
        fmt::format("# {:>11} {:>12} {:>6} {:>6} {:>6}", "size", "count", "type", "redop", "root");
    std::string units =
        fmt::format("# {:>11} {:>12} {:>6} {:>6} {:>6}", "(B)", "(elements)", "", "", "");
    for (int place = both ? 0 : 1; place < 2; ++place) {
      names += fmt::format(" {:>10} {:>10} {:>7} {:>7}{} {:>6}", "time", "avg", "algbw", "busbw",
                           options_.statistics
                               ? fmt::format(" {:>9} {:>9} {:>9} {:>5}", "min", "max", "p99", "cv")
                               : "",
                           "#wrong");
      units += fmt::format(" {:>10} {:>10} {:>7} {:>7}{} {:>6}", "(us)", "(us)", "(GB/s)", "(GB/s)",
                           options_.statistics ? fmt::format(" {:>9} {:>9} {:>9} {:>5}", "(us)",
                                                             "(us)", "(us)", "(%)")
                                               : "",
                           "");
    }
    if (benchmark_.predicted) {
      names += fmt::format(" {:>10} {:>6}", "predicted", "ratio");
      units += fmt::format(" {:>10} {:>6}", "(us)", "");
    }
    line("{}", names);
    line("{}", units);
  }

  void row(const Shape& shape, const Measurement* out, const Measurement* in, double predicted) {
    const std::size_t bytes = bytes_of_shape(benchmark_, shape, group_.size());
    std::string text = fmt::format(
        "  {:>11} {:>12} {:>6} {:>6} {:>6}", bytes, shape.part, name_of(shape.dtype),
        benchmark_.reduces ? name_of(shape.op) : "none", benchmark_.rooted ? shape.root : -1);
    json result = {
        {"size", bytes}, {"count", shape.part}, {"type", std::string(name_of(shape.dtype))}};
    if (benchmark_.reduces) result["redop"] = std::string(name_of(shape.op));
    if (benchmark_.rooted) result["root"] = shape.root;
    for (const Measurement* m : {out, in}) {
      if (m == nullptr) continue;
      text += fmt::format(
          " {:>10.2f} {:>10.2f} {:>7.3f} {:>7.3f}{} {:>6}", m->time, m->avg, m->algbw, m->busbw,
          options_.statistics
              ? fmt::format(" {:>9.2f} {:>9.2f} {:>9.2f} {:>5.1f}", m->min, m->max, m->p99, m->cv)
              : "",
          m->wrong < 0 ? "N/A" : std::to_string(m->wrong));
      result[m == out ? "out_of_place" : "in_place"] = {
          {"time_us", m->time},
          {"avg_us", m->avg},
          {"min_us", m->min},
          {"max_us", m->max},
          {"p99_us", m->p99},
          {"cv_percent", m->cv},
          {"algbw", m->algbw},
          {"busbw", m->busbw},
          {"iterations", m->iterations},
          {"wrong", m->wrong < 0 ? json() : json(m->wrong)}};
      wrong_ += std::max<std::int64_t>(0, m->wrong);
      busbw_ += m->busbw;
      ++measured_;
    }
    if (benchmark_.predicted) {
      const double time = (in != nullptr ? in : out)->time;
      text += fmt::format(" {:>10.2f} {:>6.2f}", predicted, time > 0 ? predicted / time : 0);
      result["predicted_us"] = predicted;
    }
    json_["results"].push_back(std::move(result));
    line("{}", text);
  }

  // The exit code.
  int footer() {
    const double busbw = measured_ > 0 ? busbw_ / measured_ : 0;
    if (options_.check > 0)
      line("# Out of bounds values : {} {}", wrong_, wrong_ == 0 ? "OK" : "FAILED");
    else
      line("# Out of bounds values : not checked (-c 0)");
    line("# Avg bus bandwidth    : {:.6g} GB/s", busbw);
    line("# {} concluded", benchmark_.name);
    json_["out_of_bounds"] = options_.check > 0 ? json(wrong_) : json();
    json_["average_bus_bandwidth"] = busbw;
    if (group_.rank() == 0) {
      if (options_.json) fmt::print("{}\n", json_.dump(1));
      if (!options_.json_file.empty()) {
        std::ofstream file(options_.json_file);
        file << json_.dump(1) << "\n";
        file.close();
        require(file.good(), "cannot write '" + options_.json_file + "'");
      }
    }
    return wrong_ == 0 ? 0 : static_cast<int>(ExitCode::internal);
  }

  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    if (!table_) return;
    fmt::print(format, std::forward<Args>(args)...);
    fmt::print("\n");
    std::fflush(stdout);
  }

 private:
  // One line for each rank: its process and its host.
  void ranks() {
    std::array<std::uint8_t, 160> mine{};
    char host[128] = {};
    gethostname(host, sizeof host - 1);
    const std::string text = fmt::format("pid {:>7} on {}", getpid(), host);
    std::memcpy(mine.data(), text.data(), std::min(text.size(), mine.size() - 1));
    std::vector<std::uint8_t> all(mine.size() * static_cast<std::size_t>(group_.size()));
    group_.all_gather(std::span<const std::uint8_t>(mine), std::span<std::uint8_t>(all));
    line("# Using ranks");
    for (int r = 0; r < group_.size(); ++r)
      line("#  rank {:>3} {}", r,
           reinterpret_cast<const char*>(all.data() + mine.size() * static_cast<std::size_t>(r)));
  }

  const Benchmark& benchmark_;
  const PerfOptions& options_;
  ProcessGroup& group_;
  bool table_ = false;
  json json_;
  std::int64_t wrong_ = 0;
  double busbw_ = 0;
  int measured_ = 0;
};

// What is only known once the world is; empty if nothing is wrong.
std::string trouble_with(const Benchmark& b, const PerfOptions& o, int world) {
  if (world < b.least_world)
    return fmt::format("{} needs at least {} ranks: ringrun --standalone --nproc-per-node 2 -- {}",
                       b.name, b.least_world, b.name);
  for (const int root : o.roots)
    if (b.rooted && root >= world)
      return fmt::format("--root {} is not one of {} ranks", root, world);
  return {};
}

comm::CostModel calibrate_now(const Benchmark& b, const PerfOptions& o, ProcessGroup& group,
                              const CalibrationKey& key) {
  constexpr std::size_t kLargest = std::size_t{192} << 20;
  PerfOptions quick = o;
  quick.check = 0;
  quick.iterations = 5;
  quick.warmup = 1;
  quick.min_ms = 50;
  std::unique_ptr<PerfMemory> memory;
  std::size_t capacity = 0;
  const auto time_all_reduce = [&](std::size_t bytes) {
    if (bytes > capacity) {
      memory.reset();
      capacity = std::min(kLargest, bytes * 16);
      memory = std::make_unique<PerfMemory>(group, o.own_memory, capacity, false);
    }
    const Shape shape{bytes / sizeof(float), DType::f32, comm::ReduceOp::sum, 0};
    return measure(b, quick, group, *memory, shape, true).time * 1e-6;
  };
  const auto progress = [&](const std::string& what) {
    if (group.rank() == 0 && !o.json) fmt::print(stderr, "calibrating: {}\n", what);
  };
  comm::CostModel model = calibrate(key, group, time_all_reduce, progress);
  if (group.rank() == 0) store_cost_model(key, model);
  return model;
}

int run(const Benchmark& b, int argc, char** argv) {
  PerfOptions o;
  if (!parse_perf_options(b, argc, argv, o)) return 0;
  if (o.bind) pin_to_core();
  comm::GroupOptions group_options;
  group_options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(o.timeout * 1e3));
  group_options.algorithm = o.algorithm;
  group_options.bootstrap = o.bootstrap;
  const auto group = comm::init_process_group(group_options);
  const int world = group->size();
  if (const std::string trouble = trouble_with(b, o, world); !trouble.empty()) {
    if (group->rank() != 0) throw QuietStop(ExitCode::usage);
    throw UsageError(trouble);
  }
  if (o.roots.empty())
    for (int r = 0; r < (b.rooted ? world : 1); ++r) o.roots.push_back(r);

  const CalibrationKey key{world, o.own_memory, o.algorithm};
  const comm::CostModel model =
      o.calibrate ? calibrate_now(b, o, *group, key) : load_cost_model(key);
  Report report(b, o, *group);
  report.header(model.origin);
  const auto sizes = o.sizes();
  const PerfMemory memory(*group, o.own_memory, sizes.back() + 64, o.out_of_place);
  for (int cycle = 0; o.cycles == 0 || cycle < o.cycles; ++cycle)
    for (const DType dtype : o.dtypes)
      for (const comm::ReduceOp op : o.ops) {
        if (op == comm::ReduceOp::avg && !is_floating(dtype)) continue;
        for (const int root : o.roots)
          for (const std::size_t size : sizes) {
            const auto parts =
                static_cast<std::size_t>(std::max(b.input_parts(world), b.output_parts(world)));
            const Shape shape{size / size_of(dtype) / parts, dtype, op, root};
            Measurement out, in;
            if (o.out_of_place) out = measure(b, o, *group, memory, shape, false);
            if (o.in_place) in = measure(b, o, *group, memory, shape, true);
            const double bytes = static_cast<double>(bytes_of_shape(b, shape, world));
            report.row(shape, o.out_of_place ? &out : nullptr, o.in_place ? &in : nullptr,
                       b.predicted
                           ? 1e6 * predict(model, b.collective, o.algorithm, world, bytes, root)
                           : 0);
          }
      }
  return report.footer();
}

}  // namespace

int run_benchmark(const Benchmark& benchmark, int argc, char** argv) {
  return run_program(benchmark.name, [&] { return run(benchmark, argc, argv); });
}

}  // namespace ringsmith::apps
