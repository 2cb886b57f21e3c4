// Runs kernel_bench briefly. Tests its output and refusals, but not the speeds.
#include "labs/apps/kernel_bench/kernel_bench.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/apps/programs.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;

namespace {

std::string bench(std::vector<std::string> options) {
  options.insert(options.end(), {"--seconds", "0.001"});
  const ProgramResult run = run_app(0, "kernel_bench", options);
  INFO(run.err << run.out);
  REQUIRE(run.exit_code == 0);
  return run.out;
}

}  // namespace

TEST_CASE("kernel_bench has a line for every kernel of a device, and says what times are worth",
          "[.][on_devices]") {
  const std::string device = variable("RINGSMITH_TEST_DEVICE");
  const std::string out = bench({"--device", device, "--mib", "1", "--no-check"});
  CHECK_THAT(out, ContainsSubstring(device));
  for (const char* line :
       {"by the driver", "x + y", "sums of columns", "log_softmax", "AdamW", "reduce and copy",
        "of the copy", "matmul.hpp", "naive", "blocked", "BF16 cores"})
    CHECK_THAT(out, ContainsSubstring(line));
  CHECK_THAT(bench({"--device", "cuda", "layer_norm", "--no-check"}),
             ContainsSubstring("backward") && !ContainsSubstring("softmax"));
  CHECK((out.find("SIMULATED") != std::string::npos) == apps::kEmulatedDevices);
}

TEST_CASE("kernel_bench measures one rung of the ladder, on a device without being told",
          "[.][on_devices]") {
  const std::string out = bench({"matmul", "--rung", "3", "--size", "48"});
  CHECK_THAT(out, ContainsSubstring("blocked") && ContainsSubstring("48x48x48") &&
                      !ContainsSubstring("tiled") && !ContainsSubstring("AdamW"));
}

TEST_CASE("kernel_bench multiplies GPT-2's shapes on a device, and no constants",
          "[kernel_bench]") {
  const auto sizes = apps::product_sizes(false);
  for (const std::int64_t n : {2304, 3072, 50257})
    CHECK(std::ranges::count(sizes, apps::ProductSize{8192, 768, n}) == 1);
  CHECK(std::ranges::count(sizes, apps::ProductSize{4096, 4096, 4096}) == 1);
  // Factors must vary: with constants, the chip would draw less power and clock higher.
  const Tensor factor = apps::factor_of_product(768, 2304, Device::cpu());
  const auto distinct = [&](std::int64_t first, std::int64_t step, std::int64_t n) {
    std::set<float> seen;
    for (std::int64_t i = 0; i < n; ++i) seen.insert(factor.kernel_data<float>()[first + i * step]);
    return seen.size();
  };
  CHECK(distinct(0, 1, 2304) > 64);
  CHECK(distinct(0, 2304, 768) > 64);
}

TEST_CASE("kernel_bench on the CPU shows one family, or refuses in one line", "[kernel_bench]") {
  CHECK_THAT(bench({"softmax", "--no-oracle"}),
             ContainsSubstring("log_softmax") && !ContainsSubstring("AdamW"));
  const std::vector<std::vector<std::string>> all = {{"magic"},
                                                     {"matmul", "--rung", "11"},
                                                     {"matmul", "--rung", "3", "--device", "cpu"},
                                                     {"softmax", "--rung", "3"},
                                                     {"magic", "--device", "cuda"},
                                                     {"--mib", "4"},
                                                     {"--device", "cuda", "--threads", "2"},
                                                     {"--device", "cuda:99"},
                                                     {"--seconds", "0"}};
  for (const auto& options : all) {
    const ProgramResult run = run_app(0, "kernel_bench", options);
    INFO(options.back() << ": " << run.err);
    CHECK(run.exit_code == 6);
    CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
    CHECK(run.out.empty());
  }
}
