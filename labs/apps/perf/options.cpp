#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>

#include "labs/apps/common/command_line.hpp"
#include "labs/apps/common/text.hpp"
#include "labs/apps/perf/perf.hpp"
#include "labs/apps/schedule/calibration.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::apps {

namespace {

struct Refused {
  const char* flags;
  const char* reason;
};

constexpr std::size_t kMostSizes = 100'000;  // so that a run ends in reasonable time

constexpr Refused kRefused[] = {
    {"-t,--nthreads", "use --ranks-per-process"},
    {"-g,--ngpus", "a rank has one GPU (--device cuda); use --ranks-per-process for more ranks"},
    {"-m,--agg_iters", "operations are not aggregated: each one is timed"},
    {"-p,--parallel_init", "there is one communicator, created once"},
    {"-z,--blocking", "calls block on the CPU; on a GPU each call is waited for"},
    {"-y,--stream_null", "the null stream is never used"},
    {"-G,--cudagraph", "CUDA graphs are not used"},
    {"-C,--report_cputime", "time is wall time of the slowest rank"},
    {"-S,--report_timestamps", "not implemented; --json has the start time"},
    {"-a,--average", "time is always that of the slowest rank"},
    {"-R,--local_register", "use --memory own: ringsmith's memory is registered by construction"},
    {"-x,--cta_policy", "not implemented"},
    {"-D,--device_implementation", "use --engine"},
    {"-V,--device_cta_count", "not implemented"},
    {"-M,--memory_report", "not implemented"},
    {"-u,--unalign", "not implemented; the tests cover misaligned buffers"},
    {"-K,--skip", "not implemented; use -b and -e"},
};

std::string footer() {
  return how_to_start() + "\n" +
         wrapped(
             "Prediction: --calibrate measures the cost model's constants (under 30 s) and "
             "stores them for each number of ranks, memory and algorithm; without it the built-in "
             "ones, measured on another machine, are used; the table says which. The file:",
             0) +
         "\n  " + calibration_file() + "\n\nEnvironment:\n" + starting_variables() +
         "  XDG_CACHE_HOME, HOME   where the calibration is kept\n"
         "\nExit codes: 0 ok, 1 wrong results or failed, 2 CUDA failed, 3 communication\n"
         "failed, 4 a deadline passed, 6 wrong options, 7 no more memory, files or threads\n"
         "for this process.\n";
}

}  // namespace

std::vector<std::size_t> PerfOptions::sizes() const {
  std::vector<std::size_t> out;
  double size = static_cast<double>(min_bytes);
  const double last = static_cast<double>(max_bytes);
  while (size <= last) {
    out.push_back(static_cast<std::size_t>(size));
    require(out.size() < kMostSizes,
            "these are more than 100000 sizes: give a larger --stepfactor "
            "or --stepbytes, or a smaller --maxbytes");
    size = factor > 0 ? size * factor : size + static_cast<double>(step_bytes);
    if (min_bytes == 0 && factor > 0) break;  // zero stays zero
  }
  return out;
}

bool parse_perf_options(const Benchmark& benchmark, int argc, char** argv, PerfOptions& o) {
  std::string min = "32M", max, step = "1M", factor, op = "sum", dtype = "f32", root = "0",
              algorithm = "automatic", memory = "own", place = "both", bind = "0", engine = "auto";
  CommandLine app(benchmark.description, benchmark.name);
  app.add_option("-b,--minbytes", min, "smallest size; K, M, G are powers of two");
  app.add_option("-e,--maxbytes", max, "largest size [as -b]")->default_text("");
  app.add_option("-i,--stepbytes", step, "bytes added from size to size, unless -f is given");
  app.add_option("-f,--stepfactor", factor, "factor from size to size, instead of -i");
  app.add_option("-n,--iters", o.iterations, "timed iterations")->check(whole(1));
  app.add_option("-w,--warmup_iters", o.warmup, "untimed iterations before them")->check(whole(0));
  app.add_option("--min-time", o.min_ms, "run for at least this many milliseconds per size")
      ->check(real(0, 1e9));
  app.add_option("-N,--run_cycles", o.cycles, "repeat all sizes this many times; 0: forever")
      ->check(whole(0));
  app.add_option("-c,--check", o.check, "1: verify every element exactly; 0: do not")
      ->check(whole(0, 1));
  if (benchmark.contract().reduces)
    app.add_option("-o,--op", op, "sum, avg, prod, min, max or all");
  app.add_option("-d,--datatype", dtype,
                 "f32 (float), f16 (half), bf16 (bfloat16), f64 (double), i32, i64, u8 or all");
  if (benchmark.contract().rooted()) app.add_option("-r,--root", root, "rank, or all");
  app.add_option("--place", place, "out (of place), in (place), or both")
      ->check(one_of({"both", "in", "out"}));
  app.add_option("--memory", memory,
                 "own: ringsmith's communication memory; user: plain memory, copied in")
      ->check(one_of({"own", "user"}));
  if (benchmark.collective == comm::Collective::all_reduce)
    app.add_option(
        "--algorithm", algorithm,
        "automatic (direct, small messages in one hand-off; on GPUs ring for large ones), ring, "
        "plain_ring (the "
        "ring as a simple loop; slower), gloo_ring, direct, tree, halving_doubling, double_tree, "
        "or hierarchical (within nodes, then between them); fastest: chosen by the cost model for "
        "each size");
  if (benchmark.collective == comm::Collective::all_reduce)
    app.add_option(
        "--schedule", o.schedule,
        "your own all-reduce in place of the ring: a file with its steps, or work/06-ring, which "
        "make own-ring compiles; refused unless it is proved correct");
  app.add_option("-T,--timeout", o.timeout, "seconds that a rank waits for a peer")
      ->check(seconds());
  add_meeting_options(app, o);
  add_node_options(app, o, "none");
  app.add_option(
      "--device", o.device,
      "cpu, cuda or cuda:NUMBER; with cuda the ranks of a host use its GPUs round-robin");
  app.add_option("--engine", engine,
                 "on GPUs: stream (the host drives), kernel (one kernel per collective), or auto");
  app.add_option("--ranks-per-process", o.ranks_per_process,
                 "ranks of each process, one thread each")
      ->check(whole(1, 64));
  app.add_option("-B,--bind", bind, "1: pin rank r to core r modulo the number of cores")
      ->check(one_of({"0", "1"}));
  app.add_flag("-I,--iteration-stats", o.statistics,
               "also print min, max, p99 and variation (cv, %) over the iterations");
  app.add_option("-J,--json-file", o.json_file, "also write the results into this file");
  app.add_flag("--json", o.json, "print the results as one JSON object instead of the table");
  if (benchmark.collective == comm::Collective::all_reduce)
    app.add_flag("--calibrate", o.calibrate, "measure the cost model's constants and store them");
  for (const Refused& r : kRefused)
    app.refuse(r.flags, std::string(r.flags) + " is not supported here: " + r.reason);
  app.footer(footer());
  if (!app.parse(argc, argv)) return false;

  o.min_bytes = parse_size("--minbytes", min);
  o.max_bytes = max.empty() ? o.min_bytes : parse_size("--maxbytes", max);
  require(o.max_bytes >= o.min_bytes, "--maxbytes " + max + " is less than --minbytes " + min);
  o.step_bytes = parse_size("--stepbytes", step);
  require(o.step_bytes > 0, "--stepbytes 0 never reaches --maxbytes");
  if (!factor.empty()) {
    o.factor = read_real(factor).value_or(0);
    require(o.factor > 1 && o.factor < 1e6,
            "--stepfactor '" + factor + "' must be a number above 1, below a million");
    require(o.min_bytes > 0 || o.max_bytes == 0,
            "--minbytes 0 times --stepfactor stays 0: give --minbytes 4, or --stepbytes instead");
  }
  o.dtypes.clear();
  if (dtype == "all")
    o.dtypes = {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8};
  else
    o.dtypes = {parse_dtype(dtype)};
  require(o.dtypes[0] != DType::boolean, "--datatype bool cannot be measured: use u8");
  using comm::ReduceOp;
  if (op == "all")
    o.ops = {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::avg};
  else
    o.ops = {comm::parse_reduce_op(op)};
  require(op != "avg" || std::all_of(o.dtypes.begin(), o.dtypes.end(), is_floating),
          "--op avg needs a floating --datatype, not " + dtype);
  if (root != "all") {
    const long long value = read_whole(root).value_or(-1);
    require(value >= 0 && value < 1 << 20,
            "--root '" + root + "' is not a rank: give its number, or all");
    o.roots = {static_cast<int>(value)};
  }
  o.fastest = algorithm == "fastest";
  require(o.schedule.empty() || algorithm == "automatic" || algorithm == "ring",
          "--schedule takes the place of the ring: leave out --algorithm " + algorithm);
  o.algorithm =
      o.fastest || !o.schedule.empty() ? comm::Algorithm::ring : comm::parse_algorithm(algorithm);
  o.engine = comm::parse_cuda_engine(engine);
  const bool on_device = parse_device(o.device).is_cuda();
  require(on_device || engine == "auto", "--engine " + engine + " needs --device cuda");
  require(!on_device || (!o.calibrate && !o.fastest),
          "--calibrate and --algorithm fastest are for the CPU: the cost model does not cover GPU "
          "transports");
  o.own_memory = memory == "own";
  o.bind = bind == "1";
  o.in_place = benchmark.in_place && place != "out";
  o.out_of_place = benchmark.out_of_place && place != "in";
  require(o.in_place || o.out_of_place,
          "--place " + place + ": " + benchmark.name + " has no such form");
  return true;
}

}  // namespace ringsmith::apps
