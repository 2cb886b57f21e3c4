// Tests ranks whose address space is limited (ulimit -v), as on shared login nodes.
#include <sys/resource.h>

#include "runtime/base/error.hpp"
#include "runtime/base/process.hpp"
#include "tests/fault/forked_ranks.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

std::vector<Ending> run_with(Bytes limit) {
  ForkedRanks ranks(4, [limit](std::shared_ptr<Bootstrap> place, ForkedRanks&) {
    const rlimit tight{limit.value, limit.value};
    require(setrlimit(RLIMIT_AS, &tight) == 0, "no limit set");
    GroupOptions options;
    options.transport = Transport::shm;
    const auto group = init_process_group(std::move(place), options);
    const auto memory = group->allocate(MiB(16));
    for (float& x : memory->as<float>()) x = 1;
    group->all_reduce(memory->as<float>());
    require(memory->as<float>()[1000] == 4, "a wrong sum");
  });
  return ranks.wait_for_all(std::chrono::seconds(20));
}

// Returns false under sanitizers, which reserve terabytes of address space for themselves.
bool can_be_limited() {
  if (address_space() < MiB(4096)) return true;
  WARN("NOT RUN: a limit on addresses, in a program that needs " << (address_space().value >> 30)
                                                                 << " GiB of them for itself");
  return false;
}

}  // namespace

TEST_CASE("ranks with few addresses share them", "[addresses]") {
  if (!can_be_limited()) return;
  for (const Ending& ending : run_with(address_space() + MiB(4096))) {
    INFO(ending.errors);
    CHECK(ending.code == 0);
  }
}

TEST_CASE("ranks with too few addresses name the limit and the remedy", "[addresses]") {
  if (!can_be_limited()) return;
  for (const Ending& ending : run_with(address_space() + MiB(100))) {
    INFO(ending.errors);
    CHECK(ending.exited);
    CHECK(ending.code == static_cast<int>(ExitCode::resources));
    CHECK_THAT(ending.errors, ContainsSubstring("shared memory of 4 ranks needs ") &&
                                  ContainsSubstring("(ulimit -v ") &&
                                  ContainsSubstring("ulimit -v unlimited"));
  }
}
