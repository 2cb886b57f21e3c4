// Reproduces real PyTorch DDP runs over gloo bit for bit, with one process per rank.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tests/multi/group.hpp"
#include "tests/reference/data.hpp"
#include "tests/reference/features.hpp"
#include "tests/reference/strict_rank.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/kernel_mode.hpp"

using namespace ringsmith;
using namespace ringsmith::reference;

TEST_CASE("DistributedDataParallel has the bits of real PyTorch runs at every step", "[strict]") {
  const test::KernelMode oracle(kernels::Mode::oracle);
  int found = 0;
  for (const std::string& name : list("strict")) {
    const StrictRun run = load_strict(name);
    if (run.world != test::group().size()) continue;
    ++found;
    INFO(name);
    CHECK(train_and_compare(run, test::shared_group()) == "");
  }
  // Restores the default for the other cases.
  test::group().set_algorithm(comm::Algorithm::automatic);
  if (found == 0 && test::group().rank() == 0)
    std::printf("skipped: no strict trajectory for %d ranks\n", test::group().size());
}

TEST_CASE("DistributedDataParallel's features have the bits of real PyTorch runs", "[strict]") {
  const test::KernelMode oracle(kernels::Mode::oracle);
  int found = 0;
  for (const std::string& name : list("features")) {
    const nlohmann::json run = load("features/" + name + ".json");
    if (run.at("world") != test::group().size()) continue;
    ++found;
    INFO(name);
    CHECK(replay_feature(run, test::shared_group()) == "");
  }
  test::group().set_algorithm(comm::Algorithm::automatic);
  if (found == 0 && test::group().rank() == 0)
    std::printf("skipped: no feature run for %d ranks\n", test::group().size());
}
