#include "labs/apps/perf/perf.hpp"

#include <algorithm>
#include <mutex>
#include <sched.h>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/files.hpp"
#include "labs/apps/schedule/calibration.hpp"
#include "labs/apps/schedule/own_schedule.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/schedule.hpp"
#include "runtime/job/bootstrap.hpp"
#include "runtime/job/threads.hpp"
#include "runtime/parallel/agreement.hpp"

namespace ringsmith::apps {

using comm::ProcessGroup;

namespace {

// Must be called before the process group is created, because the group examines the cores that its
// ranks may use.
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

std::string trouble_with(const Benchmark& b, const PerfOptions& o, int world) {
  if (world < b.least_world)
    return fmt::format("{} needs at least {} ranks: ringrun --standalone --nproc-per-node 2 -- {}",
                       b.name, b.least_world, b.name);
  for (const int root : o.roots)
    if (b.contract().rooted() && root >= world)
      return fmt::format("--root {} is not one of {} ranks", root, world);
  return {};
}

comm::CostModel calibrate_one(const Benchmark& b, const PerfOptions& o, ProcessGroup& group,
                              const CalibrationKey& key, const char* where) {
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
    if (group.rank() == 0 && !o.json) fmt::print(stderr, "calibrating{}: {}\n", where, what);
  };
  return calibrate(key, group, time_all_reduce, progress);
}

// Measures one kind of link. With Links::nodes, measures two kinds: the links within rank 0's node,
// and after that the links between the first ranks of all nodes. The other ranks wait. Uses user
// memory within the node, because in a job of several nodes the ranks do not read each other's
// communication memory directly.
comm::CostModel calibrate_now(const Benchmark& b, const PerfOptions& o, ProcessGroup& group,
                              const CalibrationKey& key) {
  comm::CostModel model;
  if (key.links != Links::nodes) {
    model = calibrate_one(b, o, group, key, "");
  } else {
    const auto nodes = comm::ranks_of_nodes(group.node_of(), group.size());
    std::vector<int> firsts;
    for (const auto& node : nodes) firsts.push_back(node[0]);
    const auto within = group.new_group(nodes[0]), between = group.new_group(firsts);
    PerfOptions by_slots = o;
    by_slots.own_memory = false;
    if (within->rank() >= 0) model = calibrate_one(b, by_slots, *within, key, " within a node");
    group.barrier();
    if (between->rank() >= 0) {
      const comm::CostModel wire = calibrate_one(b, o, *between, key, " between nodes");
      model.wire = comm::CostModel::Wire{wire.alpha, wire.beta};
    }
    group.barrier();
  }
  if (group.rank() == 0) store_cost_model(key, model);
  return model;
}

int run_rank(const Benchmark& b, PerfOptions o, ProcessGroup& group) {
  const int world = group.size();
  together(group, [&] {
    const std::string trouble = trouble_with(b, o, world);
    require(trouble.empty(), trouble);
  });
  if (o.roots.empty())
    for (int r = 0; r < (b.contract().rooted() ? world : 1); ++r) o.roots.push_back(r);

  together(group, [&] {
    if (group.rank() != 0) return;
    require_writable(o.json_file);
    if (o.calibrate) require_calibration_writable();
  });
  const std::vector<int> node_of = group.node_of();
  const CalibrationKey key = key_for(group, o.own_memory, o.algorithm);
  std::optional<comm::CostModel> model;  // empty if there are no predictions
  if (b.collective && group.device().is_cpu())
    model = o.calibrate ? calibrate_now(b, o, group, key) : load_cost_model(key);
  std::vector<comm::SizedChoice> choices;
  together(group, [&] {
    require(!o.fastest || model,
            "--algorithm fastest needs constants for these links: run it once with --calibrate");
  });
  if (o.fastest) choices = choose_fastest(group, *model);
  PerfReport report(b, o, group);
  report.header(model ? model->origin : "", choices);
  const auto sizes = o.sizes();
  const PerfMemory memory(group, o.own_memory, sizes.back() + 64, o.out_of_place);
  for (int cycle = 0; o.cycles == 0 || cycle < o.cycles; ++cycle)
    for (const DType dtype : o.dtypes)
      for (const comm::ReduceOp op : o.ops) {
        if (op == comm::ReduceOp::avg && !is_floating(dtype)) continue;
        for (const int root : o.roots)
          for (const std::size_t size : sizes) {
            const Shape shape{size / size_of(dtype) / b.parts(world), dtype, op, root};
            Measurement out, in;
            if (o.out_of_place) out = measure(b, o, group, memory, shape, false);
            if (o.in_place) in = measure(b, o, group, memory, shape, true);
            const double bytes = static_cast<double>(bytes_of_shape(b, shape, world));
            const comm::Algorithm algorithm =
                choices.empty() ? o.algorithm : choice_for(choices, bytes).algorithm;
            report.row(
                shape, o.out_of_place ? &out : nullptr, o.in_place ? &in : nullptr,
                model ? 1e6 * predict(*model, *b.collective, algorithm, world, bytes, root, node_of)
                      : 0);
          }
      }
  return report.footer();
}

comm::GroupOptions options_of_rank(const PerfOptions& o, int thread) {
  comm::GroupOptions options = group_options(o);
  options.algorithm = o.algorithm;
  options.engine = o.engine;
  options.device = device_of_rank(o.device, o.ranks_per_process, thread);
  return options;
}

// All ranks detect an invalid choice of devices, but only rank 0 reports the error.
std::shared_ptr<comm::ProcessGroup> join_job(std::shared_ptr<comm::Bootstrap> bootstrap,
                                             const comm::GroupOptions& options) {
  const int rank = bootstrap->rank();
  try {
    return comm::init_process_group(std::move(bootstrap), options);
  } catch (const UsageError& error) {
    if (rank == 0) throw;
    throw QuietStop(error.exit_code(), error.what());
  }
}

// Runs body on each rank of this process, with the rank's device as the current device. If there
// are several ranks, each is a thread. Returns the largest exit code, or rethrows one of the ranks'
// errors.
int run_ranks(const PerfOptions& o, const std::function<int(ProcessGroup&)>& body) {
  if (o.ranks_per_process == 1) {
    const comm::GroupOptions options = options_of_rank(o, 0);
    const DeviceGuard guard(options.device);
    return body(*join_job(comm::make_bootstrap(options.bootstrap, options.timeout), options));
  }
  const comm::GroupOptions first = options_of_rank(o, 0);
  std::vector<int> codes(static_cast<std::size_t>(o.ranks_per_process));
  rethrow_cause(comm::run_as_threads(
      std::make_shared<comm::ThreadRendezvous>(comm::make_bootstrap(first.bootstrap, first.timeout),
                                               o.ranks_per_process),
      [&](int thread, std::shared_ptr<comm::Bootstrap> bootstrap) {
        const comm::GroupOptions options = options_of_rank(o, thread);
        const DeviceGuard guard(options.device);
        codes[static_cast<std::size_t>(thread)] = body(*join_job(std::move(bootstrap), options));
      }));
  return *std::max_element(codes.begin(), codes.end());
}

int run(const Benchmark& b, int argc, char** argv) {
  PerfOptions o;
  if (!parse_perf_options(b, argc, argv, o)) return 0;
  if (o.bind) pin_to_core();
  std::mutex one_at_a_time;  // a custom schedule is set per process, and several ranks may be
                             // threads of it
  return run_ranks(o, [&](ProcessGroup& group) {
    std::string steps;
    if (!o.schedule.empty())
      together(group, [&] {
        const std::lock_guard lock(one_at_a_time);
        steps = use_schedule_of(o.schedule, group.size());
      });
    require_agreement(group, {{"the text of --schedule", steps}});
    return run_rank(b, o, group);
  });
}

}  // namespace

int run_benchmark(const Benchmark& benchmark, int argc, char** argv) {
  return run_program(benchmark.name, [&] { return run(benchmark, argc, argv); });
}

}  // namespace ringsmith::apps
