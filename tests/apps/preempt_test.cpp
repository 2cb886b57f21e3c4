// On SIGTERM or SIGUSR1 the programs finish the step, save, and exit with code 75. A resumed run
// must have the bits of an undisturbed run. RINGSMITH_TEST_KILLS sets the number of preemptions;
// RINGSMITH_TEST_SEED determines when they happen.
#include <cstdio>
#include <fmt/format.h>
#include <map>
#include <random>

#include "runtime/base/error.hpp"
#include "tests/apps/resume_runs.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

constexpr int kPreempted = static_cast<int>(ExitCode::preempted);

// Waits for the line after which a signal makes the ranks save. Returns false if they end first.
bool has_begun(Ranks& ranks, const std::string& log) {
  while (read_text(log).find("files go to") == std::string::npos)
    if (ranks.wait(0.002)) return false;
  return true;
}

}  // namespace

TEST_CASE("SIGTERM or SIGUSR1 at a random moment, to one rank or all: saved, exit code 75",
          "[resume][preempt]") {
  const long wanted = from_environment("RINGSMITH_TEST_KILLS", 10);
  const auto seed = static_cast<std::uint32_t>(
      from_environment("RINGSMITH_TEST_SEED", static_cast<long>(std::random_device()())));
  std::mt19937 random(seed);
  const TemporaryFolder folder;
  const Program program = gpt(folder);
  for (const int world : {1, 2, 3}) run(world, program, saving(folder / std::to_string(world)));
  std::map<int, long> stopped{{SIGTERM, 0}, {SIGUSR1, 0}};
  for (int number = 0; stopped[SIGTERM] + stopped[SIGUSR1] < wanted; ++number) {
    const int world = 1 + static_cast<int>(random() % 3);
    // Whether the run saves regular checkpoints, in addition to the checkpoint that a signal
    // requests.
    const bool keeps = random() % 2 == 0;
    const std::string whole = folder / std::to_string(world), to = whole + "-again";
    const Options more = (keeps ? saving(to) : Options{"--run-dir", to}) +
                         Options{"--resume", "auto", "--timeout", "20"};
    for (bool done = false; !done;) {
      const std::string log = folder / "log";
      fs::remove(log);
      const int signal = random() % 2 == 0 ? SIGTERM : SIGUSR1;
      Ranks ranks(world, program, more, log);
      if (has_begun(ranks, log)) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 100'000));
        const int victim = random() % 2 == 0 ? static_cast<int>(random() % unsigned(world)) : -1;
        ranks.kill(victim, signal);
      }
      REQUIRE(ranks.wait(60));
      const std::string said = read_text(log);
      INFO("RINGSMITH_TEST_SEED=" << seed << ", run " << number << " of " << world << " ranks\n"
                                  << said << read_text(log + ".err"));
      done = ranks.all_ended_with(0);
      REQUIRE((done || ranks.all_ended_with(kPreempted)));
      stopped[signal] += done ? 0 : 1;
      if (!done)
        CHECK_THAT(said, ContainsSubstring("stopped by a signal after step ") &&
                             ContainsSubstring("--run-dir " + to + " --resume auto\n"));
    }
    CHECK(metrics(to) == metrics(whole));
    CHECK(read_text(to + "/model.safetensors") == read_text(whole + "/model.safetensors"));
    if (keeps) check_same(whole, to, 0);
    fs::remove_all(to);
  }
  std::printf("preemptions: %ld by SIGTERM, %ld by SIGUSR1; the bits of an undisturbed run\n",
              stopped[SIGTERM], stopped[SIGUSR1]);
}

TEST_CASE("a second signal ends a rank at once; and without a run folder the first one does",
          "[programs][preempt]") {
  const TemporaryFolder folder;
  const Program endless{"train_mlp",
                        {"--draw", "200", "--hidden", "8", "--steps", "1000000", "--progress",
                         "off", "--timeout", "60"}};
  for (const int signal : {SIGTERM, SIGUSR1}) {
    const std::string name = std::to_string(signal), log = folder / ("log" + name);
    {
      Ranks ranks(2, endless, {"--run-dir", folder / ("run" + name)}, log);
      REQUIRE(has_begun(ranks, log));
      ranks.kill(1, SIGSTOP);  // so the step of rank 0 does not end
      std::this_thread::sleep_for(100ms);
      ranks.kill(0, signal);
      std::this_thread::sleep_for(400ms);
      CHECK_FALSE(ranks.wait(0));
      ranks.kill(0, signal);
      std::this_thread::sleep_for(400ms);
      ranks.kill(1, SIGKILL);
      REQUIRE(ranks.wait(10));
      CHECK(ranks.code(0) == 128 + signal);
    }
    const fs::path here = fs::current_path();
    fs::current_path(folder.path);  // the program creates its runs/ here
    Ranks alone(1, endless, {}, log + ".alone");
    fs::current_path(here);
    REQUIRE(has_begun(alone, log + ".alone"));
    alone.kill(0, signal);
    REQUIRE(alone.wait(10));
    CHECK(alone.code(0) == 128 + signal);
  }
}
