// dp_vs_ddp: trains the same model on the same batches and devices with DataParallel and with DDP,
// counts the bytes, and draws curves. The ranks of DDP are threads of this process.
//
//   a batch of N * rows    DataParallel    the whole batch goes to the root, which scatters it
//                          DDP             rank r reads rows [r * rows, (r + 1) * rows) itself
//
// The reference is a serial training run on the CPU that uses neither.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"
#include "labs/apps/common/files.hpp"
#include "labs/apps/common/job.hpp"
#include "labs/apps/compare/comparison.hpp"
#include "labs/apps/compare/metered_group.hpp"
#include "runtime/data/dataset.hpp"
#include "runtime/device/memory.hpp"
#include "runtime/job/threads.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/data_parallel.hpp"
#include "runtime/parallel/ddp.hpp"

namespace ringsmith::apps {
namespace {

constexpr double kMostApart = 1e-5;      // relative; the two methods sum in different orders
constexpr double kMostDeviation = 0.01;  // of the counters from the formulas

struct Training {
  Device::Kind kind = Device::Kind::cuda;
  std::int64_t inputs = 64, hidden = 128, classes = 1024;  // widths of the MLP
  std::int64_t rows = 8;                                   // per device and step
  int steps = 5;                                           // measured; kWarmup steps precede them
  std::uint64_t seed = 1;
  bool simulate_gil = false;
  std::chrono::milliseconds timeout{120'000};
};

// The first step allocates memory, and DDP rebuilds its buckets in the second.
constexpr int kWarmup = 2;

using Values = std::vector<std::vector<float>>;

std::unique_ptr<MLP> make_model(const Training& o) {
  manual_seed(o.seed);
  return std::make_unique<MLP>(std::vector<std::int64_t>{o.inputs, o.hidden, o.hidden, o.classes});
}

Batch rows_of(const Batch& all, std::int64_t from, std::int64_t to, Device device) {
  return Batch{all.inputs.slice(0, from, to).contiguous(),
               all.targets.slice(0, from, to).contiguous()}
      .to(device);
}

std::vector<Batch> make_batches(int devices, const Training& o) {
  Generator random(o.seed + 1);
  std::vector<Batch> out;
  for (int step = 0; step < kWarmup + o.steps; ++step) {
    std::vector<std::int64_t> classes(static_cast<std::size_t>(devices * o.rows));
    for (std::int64_t& c : classes) c = randint(0, o.classes, random);
    out.push_back({randn({devices * o.rows, o.inputs}, random), from_vector(classes)});
  }
  return out;
}

// Returns when all work that the step queued on the devices is complete.
template <class Forward>
void step(const Forward& forward, SGD& optimizer, const Batch& batch,
          const std::vector<Device>& devices) {
  optimizer.zero_grad();
  cross_entropy(forward(batch.inputs), batch.targets).backward();
  optimizer.step();
  for (const Device d : devices)
    if (d.is_cuda()) Stream::current(d).synchronize();
}

SGD make_optimizer(Module& model) { return {model.parameters(), {.lr = 0.1, .momentum = 0.9}}; }

Values values_of(const Module& model) {
  Values out;
  for (const Tensor& p : model.parameters()) out.push_back(p.to_vector<float>());
  return out;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double peak_of(Device device) {
  return device.is_cpu() ? 0 : static_cast<double>(device_allocator::stats(device).peak.value);
}
void reset_peak(Device device) {
  if (device.is_cuda()) device_allocator::reset_peak(device);
}

double difference(const Values& a, const Values& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[i].size(); ++j) {
      const double d = std::abs(double{a[i][j]} - b[i][j]) / (1 + std::abs(double{b[i][j]}));
      if (std::isnan(d)) return d;
      worst = std::max(worst, d);
    }
  return worst;
}

Values train_serial(const std::vector<Batch>& batches, const Training& o) {
  const auto model = make_model(o);
  SGD optimizer = make_optimizer(*model);
  for (const Batch& batch : batches)
    step([&](const Tensor& x) { return model->forward(x); }, optimizer, batch, {});
  return values_of(*model);
}

Values train_data_parallel(const std::vector<Device>& devices, const std::vector<Batch>& batches,
                           const Training& o, Usage& usage) {
  const auto model = make_model(o);
  model->to(devices[0]);
  DataParallel dp(*model, [&] { return make_model(o); }, devices, {.simulate_gil = o.simulate_gil});
  SGD optimizer = make_optimizer(*model);
  std::vector<double> seconds;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    if (i == kWarmup) {
      dp.reset_traffic();
      for (const Device d : devices) reset_peak(d);
    }
    const Batch batch = rows_of(batches[i], 0, batches[i].inputs.size(0), devices[0]);
    const auto start = std::chrono::steady_clock::now();
    step([&](const Tensor& x) { return dp.forward(x); }, optimizer, batch, devices);
    if (i >= kWarmup) seconds.push_back(seconds_since(start));
  }
  const LinkTraffic all = dp.root_traffic();
  usage.seconds = median(seconds);
  usage.sent = static_cast<double>(all.parameters.value) / o.steps;
  usage.received = static_cast<double>(all.gradients.value) / o.steps;
  usage.besides =
      static_cast<double>((all.inputs + all.output_gradients + all.outputs).value) / o.steps;
  usage.root_memory = peak_of(devices[0]);
  for (std::size_t i = 1; i < devices.size(); ++i)
    usage.other_memory = std::max(usage.other_memory, peak_of(devices[i]));
  return values_of(*model);
}

// Fills `usage` with this rank's figures; root_memory is this rank's memory, even if it is not rank
// 0.
Values train_rank(MLP& model, const std::shared_ptr<comm::ProcessGroup>& group, Device device,
                  const std::vector<Batch>& batches, const Training& o, Usage& usage) {
  model.to(device);
  const auto metered = std::make_shared<MeteredGroup>(group);
  DistributedDataParallel ddp(model, metered);
  SGD optimizer = make_optimizer(model);
  const std::int64_t first = group->rank() * o.rows;
  std::vector<double> seconds;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    if (i == kWarmup) {
      metered->reset_sent();
      reset_peak(device);
    }
    const Batch batch = rows_of(batches[i], first, first + o.rows, device);
    group->barrier();
    const auto start = std::chrono::steady_clock::now();
    step([&](const Tensor& x) { return ddp.forward(x); }, optimizer, batch, {device});
    group->barrier();
    if (i >= kWarmup) seconds.push_back(seconds_since(start));
  }
  usage.seconds = median(seconds);
  const Bytes gradients = metered->sent_by_all_reduces();
  usage.sent = usage.received = static_cast<double>(gradients.value) / o.steps;
  usage.besides = static_cast<double>((metered->sent() - gradients).value) / o.steps;
  // Gradients are in communication memory, which the allocator does not count.
  if (device.is_cuda())
    usage.root_memory = peak_of(device) + static_cast<double>(metered->memory().value);
  return values_of(model);
}

Values train_ddp(const std::vector<Device>& devices, const std::vector<Batch>& batches,
                 const Training& o, Usage& usage) {
  const int world = static_cast<int>(devices.size());
  std::vector<std::unique_ptr<MLP>> models;  // made on this thread, because manual_seed()
                                             // changes state that all threads share
  for (int r = 0; r < world; ++r) models.push_back(make_model(o));
  std::vector<Values> parameters(devices.size());
  std::vector<Usage> of_rank(devices.size());
  const auto errors = comm::run_as_threads(
      std::make_shared<comm::ThreadRendezvous>(world),
      [&](int rank, std::shared_ptr<comm::Bootstrap> bootstrap) {
        const auto r = static_cast<std::size_t>(rank);
        const DeviceGuard on(devices[r]);
        const auto group = comm::init_process_group(
            std::move(bootstrap),
            {.timeout = o.timeout, .algorithm = comm::Algorithm::ring, .device = devices[r]});
        parameters[r] = train_rank(*models[r], group, devices[r], batches, o, of_rank[r]);
      });
  rethrow_cause(errors);
  usage = of_rank[0];
  for (std::size_t r = 1; r < devices.size(); ++r) {
    usage.sent = usage.received = std::max(usage.sent, of_rank[r].sent);
    usage.besides = std::max(usage.besides, of_rank[r].besides);
    usage.other_memory = std::max(usage.other_memory, of_rank[r].root_memory);
    if (parameters[r] != parameters[0])
      throw Error(fmt::format("the ranks of DDP have different parameters: rank {} and rank 0", r));
  }
  return parameters[0];
}

Comparison compare(int count, const Training& o) {
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) {
    devices.push_back(o.kind == Device::Kind::cpu ? Device::cpu() : Device::cuda(i));
    require_device(devices.back());
  }
  const std::vector<Batch> batches = make_batches(count, o);
  Comparison out;
  out.devices = count;
  out.parameter_bytes = static_cast<double>(parameter_count(*make_model(o))) * sizeof(float);
  const Values serial = train_serial(batches, o);
  const Values dp = train_data_parallel(devices, batches, o, out.dp);
  const Values ddp = train_ddp(devices, batches, o, out.ddp);
  out.dp_from_serial = difference(dp, serial);
  out.ddp_from_serial = difference(ddp, serial);
  out.dp_from_ddp = difference(dp, ddp);
  return out;
}

struct Options {
  Training run;
  std::string device = "cuda";
  std::vector<int> devices;
  int predict_to = 64;
  std::string svg = "dp_vs_ddp.svg", html = "dp_vs_ddp.html";
};

void add_options(CommandLine& app, Options& o) {
  app.add_option("--device", o.device, "cuda, or cpu: all replicas and ranks on the CPU")
      ->check(one_of({"cuda", "cpu"}));
  app.add_option(
         "-n,--devices", o.devices,
         "numbers of devices to run on, e.g. 1,2,3 [powers of two up to all devices, at most 8]")
      ->default_text("")
      ->separated_by_commas(64)
      ->check(whole(1, 64));
  app.add_option("--predict", o.predict_to,
                 "number of devices up to which the curves are extrapolated")
      ->check(whole(1, 16384));
  app.add_option("--rows", o.run.rows, "samples per device and step")->check(whole(1, 1 << 20));
  app.add_option("--steps", o.run.steps, "measured steps, after two warm-up steps")
      ->check(whole(1, 1 << 20));
  app.add_option("--inputs", o.run.inputs, "width of the MLP's input")->check(whole(1, 1 << 16));
  app.add_option("--hidden", o.run.hidden, "width of the MLP's two hidden layers")
      ->check(whole(1, 1 << 16));
  app.add_option("--classes", o.run.classes, "width of the MLP's output")->check(whole(2, 1 << 16));
  app.add_option("--seed", o.run.seed, "seed of the model and the data");
  app.add_flag("--simulate-gil", o.run.simulate_gil,
               "run the host code of DataParallel's replicas one at a time, as Python does");
  app.add_option("--svg", o.svg, "SVG file for the curves; empty: none");
  app.add_option("--html", o.html, "HTML file for the report; empty: none");
  app.footer(
      "\nThe table:\n"
      "  N             devices; the batch is --rows for each of them\n"
      "  DP ms, DDP ms median time of a step; simulated where devices are emulated\n"
      "  DP KiB        parameters and gradients over the root's links in a step:\n"
      "                2 (N-1) P\n"
      "  DDP KiB       gradients that each rank sends, and receives, in a step:\n"
      "                2 P (N-1) / N\n"
      "  ratio         of these two\n"
      "  root mem, others, DDP mem\n"
      "                peak, KiB: DataParallel's root, its other devices, a rank\n"
      "  apart         largest relative difference of the trained parameters\n"
      "\nExit codes: 0 done, 1 results or counters are wrong, 6 wrong options.\n");
}

void write(const std::string& path, const std::string& text) {
  write_file(path, text);
  if (!path.empty()) fmt::print("wrote {}\n", path);
}

ReportText describe(const Options& o, double parameter_bytes) {
  const bool on_gpus = o.run.kind == Device::Kind::cuda;
  ReportText out;
  out.simulated = on_gpus && kEmulatedDevices;
  const char* where = !on_gpus           ? "replicas and ranks on the CPU"
                      : kEmulatedDevices ? "devices simulated by vgpu"
                                         : "GPUs";
  out.setting = fmt::format(
      "MLP {}-{}-{}-{}, P = {:.0f} KiB of parameters; N devices with {} rows "
      "each; {}",
      o.run.inputs, o.run.hidden, o.run.hidden, o.run.classes, parameter_bytes / 1024, o.run.rows,
      where);
  out.timing = out.simulated
                   ? "Times are simulated: all devices share the cores of this machine, so "
                     "they say nothing about GPUs."
               : on_gpus ? "Times are measured."
                         : "Times are measured; all devices share the cores of this machine.";
  return out;
}

int run(int argc, char** argv) {
  Options o;
  CommandLine app("Trains one model through DataParallel and through DDP, compares and draws.",
                  "dp_vs_ddp");
  add_options(app, o);
  if (!app.parse(argc, argv)) return 0;
  o.run.kind = o.device == "cpu" ? Device::Kind::cpu : Device::Kind::cuda;
  const int there = o.run.kind == Device::Kind::cpu ? 64 : device_count();
  require(there > 0, "there is no CUDA device; run with --device cpu");
  if (o.devices.empty())
    for (int n = 1; n <= std::min(there, 8); n *= 2) o.devices.push_back(n);
  std::ranges::sort(o.devices);
  o.devices.erase(std::unique(o.devices.begin(), o.devices.end()), o.devices.end());
  require(o.devices.back() <= there,
          fmt::format("--devices {}: only {} are available", o.devices.back(), there));
  require(o.svg.empty() || o.svg != o.html,
          "--svg and --html name the same file '" + o.svg + "': give each its own");
  require_writable(o.svg);
  require_writable(o.html);

  std::vector<Comparison> runs;
  double apart = 0;
  for (const int n : o.devices) {
    runs.push_back(compare(n, o.run));
    for (const double d :
         {runs.back().dp_from_serial, runs.back().ddp_from_serial, runs.back().dp_from_ddp})
      apart = std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(apart, d);
  }
  const ReportText text = describe(o, runs.front().parameter_bytes);
  fmt::print("{}\n{}\n\n{}\n", text.setting, text.timing, comparison_table(runs));

  const double deviation = deviation_from_formulas(runs);
  const bool agree = apart <= kMostApart, counted = deviation <= kMostDeviation;
  fmt::print("results   {}: DataParallel, DDP and serial training at most {:.1e} apart\n",
             agree ? "agree" : "DIFFER", apart);
  fmt::print("counters  {}: 2 (N-1) P and 2 P (N-1) / N, off by at most {:.3f} %\n",
             counted ? "agree" : "DIFFER", deviation * 100);
  const Comparison& most = runs.back();
  if (most.devices > 1)
    fmt::print(
        "other     rows over the root's links {:.0f} bytes, usage map of a DDP rank {:.0f}\n",
        most.dp.besides, most.ddp.besides);
  write(o.svg, comparison_svg(runs, text, o.predict_to));
  write(o.html, comparison_html(runs, text, o.predict_to));
  return agree && counted ? 0 : 1;
}

}  // namespace
}  // namespace ringsmith::apps

int main(int argc, char** argv) {
  return ringsmith::apps::run_program("dp_vs_ddp",
                                      [&] { return ringsmith::apps::run(argc, argv); });
}
