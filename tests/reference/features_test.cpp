// What PyTorch's DistributedDataParallel does with hooks, accumulation, join, a static graph and
// BatchNorm, and its ZeroRedundancyOptimizer, done by as many threads as the run had processes,
// over shared memory or with a device for every rank (RINGSMITH_TEST_DEVICE).
#include "tests/reference/features.hpp"

#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "runtime/comm/bootstrap/threads.hpp"
#include "tests/reference/data.hpp"
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
    const int world = run.at("world").get<int>();
    const auto rendezvous = std::make_shared<comm::ThreadRendezvous>(world);
    std::vector<std::string> complaints(static_cast<std::size_t>(world));
    std::vector<std::thread> ranks;
    for (int r = 0; r < world; ++r)
      ranks.emplace_back([&, r] {
        try {
          comm::GroupOptions options;
          if (!test::device().is_cpu()) options.device = Device::cuda(r % device_count());
          complaints[static_cast<std::size_t>(r)] = replay_feature(
              run, comm::init_process_group(std::make_shared<comm::ThreadBootstrap>(rendezvous, r),
                                            options));
        } catch (const std::exception& e) {
          complaints[static_cast<std::size_t>(r)] = e.what();
        }
      });
    for (std::thread& rank : ranks) rank.join();
    INFO(name);
    for (const std::string& complaint : complaints) CHECK(complaint == "");
    if (run_tolerance(run, test::device()) == 0) ++exact;
  }
  if (is_shipped_set()) CHECK(runs.size() == 22);
  fmt::print("reference: {} runs of {} features, {} of them bit for bit\n", names.size(),
             runs.size(), exact);
  std::fflush(stdout);
}
