// dp_vs_ddp: the same training through DataParallel and DistributedDataParallel, counted and drawn.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <fmt/format.h>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"
#include "labs/apps/common/comparison_report.hpp"
#include "labs/apps/common/number.hpp"
#include "labs/apps/common/output_file.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::apps {
namespace {

constexpr double kMostApart = 1e-5;      // relative: the two add in different orders
constexpr double kMostDeviation = 0.01;  // counters from the formulas

#ifdef RINGSMITH_VGPU
constexpr bool kEmulated = true;
#else
constexpr bool kEmulated = false;
#endif

struct Options {
  ComparisonOptions run;
  std::string device = "cuda";
  std::vector<int> devices;
  int predict_to = 64;
  std::string svg = "dp_vs_ddp.svg", html = "dp_vs_ddp.html";
};

std::vector<int> powers_of_two(int most) {
  std::vector<int> out;
  for (int n = 1; n <= most; n *= 2) out.push_back(n);
  return out;
}

void add_options(CLI::App& app, Options& o) {
  app.option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--device", o.device, "cuda, or cpu: all replicas and ranks on the CPU")
      ->check(CLI::IsMember({"cuda", "cpu"}));
  app.add_option("-n,--devices", o.devices,
                 "numbers of devices to run on, as in 1,2,3 [powers of two up to what there is, 8 "
                 "at most]")
      ->always_capture_default(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->delimiter(',')
      ->check(whole(1, 64));
  app.add_option("--predict", o.predict_to, "devices up to which the curves are continued")
      ->check(whole(1, 16384));
  app.add_option("--rows", o.run.rows, "samples of each device and step")->check(whole(1, 1 << 20));
  app.add_option("--steps", o.run.steps, "measured steps, after two that are not")
      ->check(whole(1, 1 << 20));
  app.add_option("--inputs", o.run.inputs, "width of the MLP's input")->check(whole(1, 1 << 16));
  app.add_option("--hidden", o.run.hidden, "width of its two hidden layers")
      ->check(whole(1, 1 << 16));
  app.add_option("--classes", o.run.classes, "width of its output")->check(whole(2, 1 << 16));
  app.add_option("--seed", o.run.seed, "of the model and the data");
  app.add_flag("--simulate-gil", o.run.simulate_gil,
               "DataParallel's replicas run their host code one at a time, as Python's do");
  app.add_option("--svg", o.svg, "file for the picture; empty: none");
  app.add_option("--html", o.html, "file for the page; empty: none");
  app.footer(
      "\nThe table:\n"
      "  N             devices; the batch is --rows for each of them\n"
      "  DP ms, DDP ms time of a step, median; simulated where devices are emulated\n"
      "  DP KiB        parameters and gradients over the root's links in a step: 2 (N-1) P\n"
      "  DDP KiB       gradients sent by each rank in a step, as much received: 2 P (N-1) / N\n"
      "  ratio         of these two\n"
      "  root mem, others, DDP mem   peak, KiB: DataParallel's root, its other devices, a rank\n"
      "  apart         largest relative difference of the trained parameters\n"
      "\nExit codes: 0 done, 1 results or counters are not as they must be, 6 wrong options.\n");
}

void write(const std::string& path, const std::string& text) {
  write_file(path, text);
  if (!path.empty()) fmt::print("wrote {}\n", path);
}

ReportText describe(const Options& o, double parameter_bytes) {
  const bool on_gpus = o.run.kind == Device::Kind::cuda;
  ReportText out;
  out.simulated = on_gpus && kEmulated;
  const char* where = !on_gpus    ? "replicas and ranks on the CPU"
                      : kEmulated ? "devices simulated by vgpu"
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
  CLI::App app("Trains one model through DataParallel and through DDP, compares and draws.",
               "dp_vs_ddp");
  add_options(app, o);
  if (!parse_command_line(app, argc, argv)) return 0;
  o.run.kind = o.device == "cpu" ? Device::Kind::cpu : Device::Kind::cuda;
  const int there = o.run.kind == Device::Kind::cpu ? 64 : device_count();
  require(there > 0, "there is no CUDA device; run with --device cpu");
  if (o.devices.empty()) o.devices = powers_of_two(std::min(there, 8));
  std::sort(o.devices.begin(), o.devices.end());
  o.devices.erase(std::unique(o.devices.begin(), o.devices.end()), o.devices.end());
  require(o.devices.back() <= there,
          fmt::format("--devices {}: there are {}", o.devices.back(), there));
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
      if (!(d <= apart)) apart = d;  // keeps NaN
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
        "besides   rows over the root's links {:.0f} bytes, usage map of a DDP rank {:.0f}\n",
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
