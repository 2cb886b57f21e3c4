// Kills a rank with -9 while the ranks meet, connect and communicate. Every survivor must name the
// dead rank within 5 s, and nothing may be left behind. `make test-all` kills a few times, `make
// test-kills` RINGSMITH_TEST_KILLS times; RINGSMITH_TEST_SEED determines when.
// RINGSMITH_TEST_SLOWNESS multiplies the range of these times for emulated processors.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <dirent.h>
#include <fstream>
#include <random>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/fault/forked_ranks.hpp"
#include "tests/fault/started_by_hand.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/free_port.hpp"
#include "tests/support/transport.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

constexpr double kLimit = 5;  // seconds from the kill to the end of a survivor
constexpr std::chrono::milliseconds kTimeout{3000};  // also limits waits for absent ranks

long from_environment(const char* name, long otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::atol(text) : otherwise;
}

struct Plan {
  int world = 2, victim = 0, program = 0;
  int moment_us = 0;  // after the ranks were started

  [[nodiscard]] std::string describe() const {
    return "rank " + std::to_string(victim) + " of " + std::to_string(world) + " killed after " +
           std::to_string(moment_us) + " us of program " + std::to_string(program);
  }
};

constexpr int kPrograms = 5;

Plan random_plan(std::mt19937& random) {
  Plan plan;
  plan.world = 2 + static_cast<int>(random() % 3);
  plan.victim = static_cast<int>(random() % static_cast<unsigned>(plan.world));
  plan.program = static_cast<int>(random() % kPrograms);
  // Meeting takes about 30 ms on an idle machine.
  static const long slowness = from_environment("RINGSMITH_TEST_SLOWNESS", 1);
  const long most_us = slowness * (random() % 4 == 0 ? 60'000 : 300'000);
  plan.moment_us = static_cast<int>(random() % static_cast<unsigned long>(most_us));
  return plan;
}

void talk_for_ever(ProcessGroup& g, int program) {
  const std::size_t count = program == 1 ? 1'000'000 : 2000;
  std::vector<float> a(count), b(count);
  const auto own = g.allocate(Bytes(program == 2 ? count * sizeof(float) : 0));
  const int next = (g.rank() + 1) % g.size(), previous = (g.rank() + g.size() - 1) % g.size();
  while (true) {
    if (program == 2) g.all_reduce(own->as<float>());
    if (program == 3) {
      const auto one = g.all_reduce_async(std::span(a), std::span(a), ReduceOp::sum);
      const auto two = g.broadcast_async(std::span(b), 0);
      two->wait();
      one->wait();
    }
    if (program == 4) {
      g.send(std::span(a), next);
      g.recv(std::span(b), previous);
    }
    if (program < 2) g.all_reduce(std::span(a));
  }
}

ForkedRanks start(const Plan& plan, const std::string& port) {
  return {plan.world, [&](const std::shared_ptr<Bootstrap>& place, ForkedRanks&) {
            look_started_by_hand(place->rank(), plan.world, port);
            GroupOptions options;
            options.bootstrap = BootstrapKind::env;
            options.timeout = kTimeout;
            options.transport = test_transport();
            const auto group = init_process_group(options);
            talk_for_ever(*group, plan.program);
          }};
}

// Abstract sockets, shared memory and temporary files have their creator's pid in their names.
std::size_t left_behind(const std::vector<Ending>& endings) {
  std::size_t n = 0;
  const auto is_ours = [&](const std::string& text) {
    return text.find("ringsmith") != std::string::npos &&
           std::any_of(endings.begin(), endings.end(), [&](const Ending& e) {
             return text.find("-" + std::to_string(e.pid) + "-") != std::string::npos;
           });
  };
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) n += is_ours(line) ? 1 : 0;
  for (const char* folder : {"/dev/shm", "/tmp"}) {
    DIR* const dir = opendir(folder);
    while (const dirent* entry = dir != nullptr ? readdir(dir) : nullptr)
      n += is_ours(entry->d_name) ? 1 : 0;
    if (dir != nullptr) closedir(dir);
  }
  return n;
}

// Returns the seconds from the kill to the end of the last survivor.
double check_kill(const Plan& plan) {
  const std::string port = testing::free_port();
  std::vector<Ending> endings;
  {
    ForkedRanks ranks = start(plan, port);
    std::this_thread::sleep_for(std::chrono::microseconds(plan.moment_us));
    ranks.kill(plan.victim, SIGKILL);
    endings = ranks.wait_for_all(std::chrono::seconds(20));
  }
  double slowest = 0;
  for (int r = 0; r < plan.world; ++r) {
    if (r == plan.victim) continue;
    const Ending& ending = endings[static_cast<std::size_t>(r)];
    INFO("rank " << r << " after " << ending.seconds << " s: " << ending.errors);
    CHECK(ending.exited);
    CHECK(ending.seconds < kLimit);
    CHECK_THAT(ending.errors, ContainsSubstring("rank " + std::to_string(plan.victim)));
    CHECK(std::count(ending.errors.begin(), ending.errors.end(), '\n') == 1);
    slowest = std::max(slowest, ending.seconds);
  }
  CHECK((waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD));
  CHECK(left_behind(endings) == 0);
  CHECK_NOTHROW(tcp::listen_on("lo", static_cast<std::uint16_t>(std::stoi(port))));
  return slowest;
}

}  // namespace

TEST_CASE("kill -9 at random moments: every survivor names the dead rank within 5 s",
          "[fault][kills]") {
  constexpr long kFew = 3;
  const long kills = from_environment("RINGSMITH_TEST_KILLS", kFew);
  const auto seed = static_cast<std::uint32_t>(
      from_environment("RINGSMITH_TEST_SEED", static_cast<long>(std::random_device()())));
  std::mt19937 random(seed);
  std::vector<double> seconds;
  for (long n = 0; n < kills; ++n) {
    const Plan plan = random_plan(random);
    INFO("RINGSMITH_TEST_SEED=" << seed << ", kill " << n << ": " << plan.describe());
    seconds.push_back(check_kill(plan));
  }
  std::sort(seconds.begin(), seconds.end());
  if (kills > kFew)
    std::printf(
        "%ld kills over %s, seed %u: the last survivor had ended after %.3f s (median), "
        "%.3f s (longest)\n",
        kills, std::string(name_of(test_transport())).c_str(), seed, seconds[seconds.size() / 2],
        seconds.back());
}
