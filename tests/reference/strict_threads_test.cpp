// The golden trajectories with real ranks: as many threads as the run had processes, each with its
// own DistributedDataParallel, over shared memory or with a device for every rank
// (RINGSMITH_TEST_DEVICE). tests/multi/strict_test.cpp is the same with processes.
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/bootstrap/threads.hpp"
#include "runtime/comm/process_group.hpp"
#include "tests/reference/data.hpp"
#include "tests/reference/strict_rank.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/device.hpp"
#include "tests/support/kernel_mode.hpp"

using namespace ringsmith;
using namespace ringsmith::reference;

TEST_CASE("DistributedDataParallel on threads has the bits of real PyTorch runs at every step",
          "[on_device]") {
  if (!has_part("strict")) return;
  const test::KernelMode oracle(kernels::Mode::oracle);
  for (const std::string& name : list("strict")) {
    const StrictRun run = load_strict(name);
    const auto rendezvous = std::make_shared<comm::ThreadRendezvous>(run.world);
    std::vector<std::string> complaints(static_cast<std::size_t>(run.world));
    std::vector<std::thread> ranks;
    for (int r = 0; r < run.world; ++r)
      ranks.emplace_back([&, r] {
        try {
          comm::GroupOptions options;
          if (!test::device().is_cpu()) options.device = Device::cuda(r % device_count());
          complaints[static_cast<std::size_t>(r)] = train_and_compare(
              run, comm::init_process_group(std::make_shared<comm::ThreadBootstrap>(rendezvous, r),
                                            options));
        } catch (const std::exception& e) {
          complaints[static_cast<std::size_t>(r)] = e.what();
        }
      });
    for (std::thread& rank : ranks) rank.join();
    INFO(name);
    for (const std::string& complaint : complaints) CHECK(complaint == "");
  }
}
