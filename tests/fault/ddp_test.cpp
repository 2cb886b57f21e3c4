// A rank dies or leaves during training. Every other rank ends soon and names it.
#include "runtime/parallel/ddp.hpp"

#include <csignal>
#include <thread>

#include "runtime/optim/optimizer.hpp"
#include "tests/fault/forked_ranks.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/toy_models.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

constexpr double kSoon = 5;  // seconds

// Trains until it is interrupted. in_backward(rank, step) runs between two gradients.
ForkedRanks::Body endless_training(std::function<void(int rank, int step)> in_backward = {}) {
  return [in_backward](const std::shared_ptr<comm::Bootstrap>& bootstrap, ForkedRanks& ranks) {
    const auto group = comm::init_process_group(bootstrap);
    const int rank = group->rank();
    const Tensor w1 = trained(integers({300, 200}, 1)), w2 = trained(integers({300, 300}, 2));
    const Tensor x = integers({8, 200}, 3);
    DistributedDataParallel ddp({{"w1", w1}, {"w2", w2}}, {}, group,
                                {.bucket_cap_mb = 0.1, .first_bucket_mb = 0.1});
    SGD optimizer({w1, w2}, {.lr = 1e-6});
    int step = 0;
    if (in_backward)
      register_post_accumulate_grad_hook(w2, [&](const Tensor&) { in_backward(rank, step); });
    while (true) {
      optimizer.zero_grad();
      ddp.forward([&] { return mean(linear(relu(linear(x, w1)), w2)); }).backward();
      optimizer.step();
      ranks.made_progress(rank);
      ++step;
    }
  };
}

void check_survivors(const std::vector<Ending>& endings, int lost) {
  for (std::size_t r = 0; r < endings.size(); ++r) {
    if (static_cast<int>(r) == lost) continue;
    const Ending& ending = endings[r];
    INFO("rank " << r << ": " << ending.errors);
    CHECK(ending.exited);
    CHECK(ending.code == static_cast<int>(ExitCode::communication));
    CHECK(ending.seconds < kSoon);
    CHECK_THAT(ending.errors, ContainsSubstring("rank " + std::to_string(lost)));
    CHECK(std::count(ending.errors.begin(), ending.errors.end(), '\n') == 1);
  }
}

}  // namespace

TEST_CASE("a rank killed during training is named by every other rank within 5 s", "[fault]") {
  const int world = GENERATE(2, 3, 4);
  for (int trial = 0; trial < 4; ++trial) {
    ForkedRanks ranks(world, endless_training());
    REQUIRE(ranks.wait_for_progress(3, std::chrono::seconds(30)));
    std::this_thread::sleep_for(std::chrono::microseconds(700 * trial));
    const int lost = trial % world;
    ranks.kill(lost, SIGKILL);
    check_survivors(ranks.wait_for_all(std::chrono::seconds(15)), lost);
  }
}

TEST_CASE("a rank killed between two gradients is named, though its first bucket was in",
          "[fault]") {
  ForkedRanks ranks(3, endless_training([](int rank, int step) {
                      if (rank == 1 && step == 2) raise(SIGKILL);
                    }));
  ranks.kill(1, 0);  // only starts the clock
  check_survivors(ranks.wait_for_all(std::chrono::seconds(15)), 1);
}

TEST_CASE("an exception in one rank's backward ends all ranks, each with one line", "[fault]") {
  ForkedRanks ranks(3, endless_training([](int rank, int step) {
                      if (rank == 2 && step == 2) throw Error("out of luck");
                    }));
  ranks.kill(2, 0);
  const auto endings = ranks.wait_for_all(std::chrono::seconds(15));
  check_survivors(endings, 2);
  CHECK_THAT(endings[2].errors, ContainsSubstring("out of luck"));
  CHECK(endings[2].code == static_cast<int>(ExitCode::internal));
}

TEST_CASE("a rank that skips a backward is told, instead of averaging two different steps",
          "[fault]") {
  ForkedRanks ranks(3, [](const std::shared_ptr<comm::Bootstrap>& bootstrap, ForkedRanks&) {
    const auto group = comm::init_process_group(bootstrap);
    const Tensor w = trained(ones({10}));
    DistributedDataParallel ddp({{"w", w}}, {}, group);
    for (int step = 0; step < 5; ++step) {
      w.set_grad({});
      const Tensor loss = ddp.forward([&] { return sum(w); });
      if (group->rank() == 1 && step == 2) continue;
      loss.backward();
    }
  });
  ranks.kill(0, 0);
  const auto endings = ranks.wait_for_all(std::chrono::seconds(15));
  for (const Ending& ending : endings) {
    INFO(ending.errors);
    CHECK(ending.code == static_cast<int>(ExitCode::communication));
    CHECK(ending.seconds < kSoon);
    CHECK_THAT(ending.errors, ContainsSubstring("ranks are at different steps"));
  }
}
