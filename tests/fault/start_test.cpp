// Tests starts that cannot succeed. Each rank must end soon, and name the culprit in one line.
#include <algorithm>
#include <memory>

#include "tests/launch/background.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/free_port.hpp"

using namespace ringsmith::testing;

namespace {

using Words = std::vector<std::string>;

struct Rank {
  int rank;
  int world;
  const char* secret = "sixteen letters!";
  int exit_code = 3;
  const char* says = "";
};

struct Case {
  const char* name;
  std::vector<Rank> ranks;
};

constexpr const char* kOther = "another 16 bytes";

const std::vector<Case> kCases = {
    {"rank 2 of 4 never comes",
     {{0, 4, "sixteen letters!", 4, "rank 2 never arrived"},
      {1, 4, "sixteen letters!", 4, "rank 2 never arrived"},
      {3, 4, "sixteen letters!", 4, "rank 2 never arrived"}}},
    {"two ranks never come",
     {{0, 4, "sixteen letters!", 4, "rank 1 never arrived; rank 3 never arrived"},
      {2, 4, "sixteen letters!", 4, "rank 1 never arrived; rank 3 never arrived"}}},
    {"rank 0, which would hold the store, never comes",
     {{1, 3, "sixteen letters!", 4, "rank 0, which holds it, never started"},
      {2, 3, "sixteen letters!", 4, "rank 0, which holds it, never started"}}},
    {"rank 1 is given twice",
     {{0, 3, "sixteen letters!", 3, "rank 1 was given twice: to pid "},
      {1, 3, "sixteen letters!", 3, "rank 1 was given twice: to pid "},
      {1, 3, "sixteen letters!", 3, "rank 1 was given twice: to pid "}}},
    {"world sizes disagree",
     {{0, 2, "sixteen letters!", 3, "the ranks disagree: WORLD_SIZE is "},
      {1, 3, "sixteen letters!", 3, "the ranks disagree: WORLD_SIZE is "}}},
    {"one rank has another secret",
     {{0, 2, "sixteen letters!", 4, "rank 1 never arrived"},
      {1, 2, kOther, 3, "refused this process: its secret is not the job's"}}},
    {"a second job's rank 0 on the same port",
     {{0, 2, "sixteen letters!", -1, ""},  // either of the two may be first
      {0, 2, kOther, -1, ""}}},
    {"a rank of a second job on the same port",
     {{0, 2, "sixteen letters!", 4, "rank 1 never arrived"},
      {1, 2, kOther, 3, "or the port belongs to another job"}}},
};

}  // namespace

TEST_CASE("starts that cannot succeed: who is at fault, on every rank", "[start]") {
  std::vector<std::vector<std::unique_ptr<Background>>> all;
  for (const Case& c : kCases) {
    const std::string port = free_port();
    auto& running = all.emplace_back();
    for (const Rank& r : c.ranks)
      running.push_back(std::make_unique<Background>(Words{
          "/usr/bin/env", "RANK=" + std::to_string(r.rank), "WORLD_SIZE=" + std::to_string(r.world),
          "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port,
          std::string("RINGSMITH_SECRET=") + r.secret, RINGSMITH_BINARY_DIR "/bin/all_reduce_perf",
          "-b", "1K", "-n", "1", "--timeout", "3"}));
  }
  for (std::size_t n = 0; n < kCases.size(); ++n) {
    const Case& c = kCases[n];
    int taken = 0, missing = 0;
    for (std::size_t i = 0; i < c.ranks.size(); ++i) {
      const int code = all[n][i]->wait();
      const std::string said = all[n][i]->output();
      INFO(c.name << ", rank " << c.ranks[i].rank << "\n" << said);
      CHECK(std::count(said.begin(), said.end(), '\n') == 1);
      CHECK_THAT(said, ContainsSubstring("all_reduce_perf: error: ") &&
                           ContainsSubstring(c.ranks[i].says));
      if (c.ranks[i].exit_code >= 0) {
        CHECK(code == c.ranks[i].exit_code);
        continue;
      }
      taken += code == 6 && said.find("another program listens there") != std::string::npos;
      missing += code == 4 && said.find("rank 1 never arrived") != std::string::npos;
    }
    if (c.ranks[0].exit_code < 0) CHECK((taken == 1 && missing == 1));
  }
}
