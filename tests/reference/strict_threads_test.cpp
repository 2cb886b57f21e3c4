// Repeats the golden trajectories with ranks as threads, over shared memory or with one device per
// rank (RINGSMITH_TEST_DEVICE). tests/multi/strict_test.cpp uses processes.
#include <string>

#include "tests/reference/data.hpp"
#include "tests/reference/strict_rank.hpp"
#include "tests/reference/thread_ranks.hpp"
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
    INFO(name);
    for (const std::string& complaint :
         complaints_of(run.world, [&](auto group) { return train_and_compare(run, group); }))
      CHECK(complaint == "");
  }
}
