// kernel_bench: measures the speed of the kernels, on the CPU or on a device.
#include "labs/apps/kernel_bench/kernel_bench.hpp"

#include <fmt/ranges.h>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"

namespace ringsmith::apps {
namespace {

using Families = std::vector<std::string>;
const Families kOnCpu{"matmul",    "linear",    "layer_norm", "softmax",
                      "embedding", "attention", "optim"};
const Families kOnDevice{"matmul",  "elementwise", "reduction", "layer_norm",
                         "softmax", "optim",       "ring"};

int run(int argc, char** argv) {
  KernelBenchOptions o;
  o.mib = kEmulatedDevices ? 1 : 256;
  std::string device = "cpu";
  bool no_oracle = false, no_check = false;
  CommandLine app("Measures the speed of the kernels, family by family (medians).", "kernel_bench");
  app.add_option("family,--family", o.family,
                 fmt::format("on the CPU {}; on a device {}; or all", fmt::join(kOnCpu, ", "),
                             fmt::join(kOnDevice, ", ")));
  auto* where = app.add_option("--device", device, "cpu, cuda or cuda:NUMBER");
  app.add_option("--seconds", o.seconds, "seconds spent on each line")->check(above_zero(3600));
  app.group("CPU");
  auto* threads =
      app.add_option("--threads", o.threads, "threads of the fast kernels")->check(whole(1, 256));
  auto* oracle = app.add_flag("--no-oracle", no_oracle, "skip the oracles");
  app.group("Device");
  auto* rung = app.add_option("--rung", o.rung,
                              "matmul: only this version (kernels/cuda/matmul.hpp lists them), on "
                              "cuda unless --device is given; 0: all")
                   ->check(whole(0, 99));
  auto* size = app.add_option("--size", o.size, "matmul: rows and columns; 0: several")
                   ->check(whole(0, 1 << 15));
  auto* mib = app.add_option("--mib", o.mib, "MiB of each operand of the other families")
                  ->check(whole(1, 1 << 13));
  auto* check = app.add_flag("--no-check", no_check,
                             "do not fail if a GPU kernel does not reach the required share of a "
                             "copy's bandwidth (the last column)");
  app.footer(R"(
On the CPU, matrix products are ringsmith's own, compared with OpenBLAS's; bf16
products are measured with every instruction set that the processor has for them
(the OpenBLAS column: widened). On a device, memory-bound kernels are compared
with a copy of the same number of bytes by the driver. Under the emulator times
are simulated and say nothing about GPUs.
Environment: OPENBLAS_CORETYPE (Haswell, SkylakeX, ...) overrides OpenBLAS's
choice of kernels.
Exit codes: 0 done, 1 a GPU kernel is too slow, 2 CUDA failed, 6 wrong
options.)");
  if (!app.parse(argc, argv)) return 0;
  if (rung->given() && !where->given()) device = "cuda";
  o.device = parse_device(device);
  o.oracle = !no_oracle;
  o.check = !no_check;
  for (const Option* option : {rung, size, mib, check})
    require(!option->given() || o.device.is_cuda(),
            option->name() + " is for devices: add --device cuda");
  for (const Option* option : {threads, oracle})
    require(!option->given() || o.device.is_cpu(),
            option->name() + " is for the CPU: leave out this option or --device");
  const Families& families = o.device.is_cuda() ? kOnDevice : kOnCpu;
  require(o.family == "all" || std::ranges::find(families, o.family) != families.end(),
          fmt::format("family '{}': on {} there are {} and all", o.family,
                      o.device.is_cuda() ? "a device" : "the CPU", fmt::join(families, ", ")));
  if (o.device.is_cuda()) return bench_on_device(o) ? 0 : 1;
  bench_on_cpu(o);
  return 0;
}

}  // namespace
}  // namespace ringsmith::apps

int main(int argc, char** argv) {
  return ringsmith::apps::run_program("kernel_bench",
                                      [&] { return ringsmith::apps::run(argc, argv); });
}
