// Ranks as threads repeat PyTorch's runs of DistributedDataParallel's features and of
// ZeroRedundancyOptimizer.
#include "tests/reference/features.hpp"

#include <cstdio>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/reference/data.hpp"
#include "tests/reference/thread_ranks.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/device.hpp"
#include "tests/support/kernel_mode.hpp"

using namespace ringsmith;
using namespace ringsmith::reference;

TEST_CASE("DistributedDataParallel does with each feature what PyTorch's does", "[on_device]") {
  if (!has_part("features")) return;
  const test::KernelMode oracle(kernels::Mode::oracle);
  const std::vector<std::string> names = list("features");
  std::size_t exact = 0;
  std::map<std::string, int> runs;
  for (const std::string& name : names) {
    const nlohmann::json run = load("features/" + name + ".json");
    ++runs[name.substr(0, name.rfind("_w"))];
    INFO(name);
    for (const std::string& complaint :
         complaints_of(run.at("world"), [&](auto group) { return replay_feature(run, group); }))
      CHECK(complaint == "");
    if (run_tolerance(run, test::device()) == 0) ++exact;
  }
  if (is_shipped_set()) CHECK(runs.size() == 22);
  fmt::print("reference: {} runs of {} features, {} of them bit for bit\n", names.size(),
             runs.size(), exact);
  std::fflush(stdout);
}
