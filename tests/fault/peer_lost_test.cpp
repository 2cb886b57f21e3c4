// A rank is killed with -9. Every other rank ends within seconds and names it, and nothing is left
// behind.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <dirent.h>
#include <fstream>
#include <signal.h>
#include <thread>
#include <unistd.h>

#include "tests/fault/fork_ranks.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

constexpr int kVictim = 1;
constexpr double kLimit = 5;  // seconds

void die() { kill(getpid(), SIGKILL); }

// Kills this process after the delay, in the middle of an operation.
void die_later(int microseconds) {
  std::thread([microseconds] {
    usleep(static_cast<useconds_t>(microseconds));
    die();
  }).detach();
}

void check_survivors(const std::vector<Outcome>& outcomes) {
  const auto& victim = outcomes[kVictim];
  CHECK(victim.killed);
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    if (r == kVictim) continue;
    INFO("rank " << r << ": " << outcomes[r].error);
    CHECK(!outcomes[r].killed);
    CHECK_THAT(outcomes[r].error, ContainsSubstring("PeerLost"));
    CHECK_THAT(outcomes[r].error, ContainsSubstring("rank 1 (pid " + std::to_string(victim.pid)));
    CHECK_THAT(outcomes[r].error, ContainsSubstring(") is gone"));
    CHECK(outcomes[r].peer == kVictim);
    CHECK(outcomes[r].seconds - victim.seconds < kLimit);
  }
}

std::size_t entries_named_ringsmith(const char* folder) {
  std::size_t n = 0;
  DIR* const dir = opendir(folder);
  if (dir == nullptr) return 0;
  while (const dirent* entry = readdir(dir))
    n += std::string(entry->d_name).find("ringsmith") != std::string::npos ? 1 : 0;
  closedir(dir);
  return n;
}

std::size_t orphaned_sockets(const std::vector<Outcome>& outcomes) {
  std::ifstream table("/proc/net/unix");
  std::size_t n = 0;
  for (std::string line; std::getline(table, line);)
    for (const Outcome& o : outcomes)
      n += line.find("@ringsmith-" + std::to_string(o.pid) + "-") != std::string::npos ? 1 : 0;
  return n;
}

}  // namespace

TEST_CASE("survivors of a rank killed before its first call name it", "[fault]") {
  for (const int world : {2, 4})
    check_survivors(run_ranks(world, {}, [](ProcessGroup& g) {
      if (g.rank() == kVictim) die();
      g.barrier();
    }));
}

TEST_CASE("survivors of a rank killed in the middle of a collective name it", "[fault][leaves]") {
  const std::size_t shm = entries_named_ringsmith("/dev/shm"),
                    tmp = entries_named_ringsmith("/tmp");
  for (const int world : {2, 3})
    for (const bool own : {false, true})
      for (const std::size_t count : {100, 5'000, 3'000'000})
        for (const int microseconds : {500, 20'000}) {
          INFO("world " << world << ", " << count << " elements, killed after " << microseconds
                        << " us" << (own ? ", own memory" : ""));
          const auto outcomes = run_ranks(world, {}, [&](ProcessGroup& g) {
            std::vector<float> heap(own ? 0 : count);
            const auto memory = g.allocate(Bytes(own ? count * sizeof(float) : 0));
            const auto data = own ? memory->as<float>() : std::span<float>(heap);
            g.barrier();
            if (g.rank() == kVictim) die_later(microseconds);
            while (true) g.all_reduce(data);
          });
          check_survivors(outcomes);
          CHECK(orphaned_sockets(outcomes) == 0);
        }
  CHECK(entries_named_ringsmith("/dev/shm") == shm);
  CHECK(entries_named_ringsmith("/tmp") == tmp);
}

TEST_CASE("survivors that wait for asynchronous work name the killed rank", "[fault]") {
  check_survivors(run_ranks(3, {}, [](ProcessGroup& g) {
    std::vector<float> a(100'000), b(100'000);
    if (g.rank() == kVictim) die_later(1000);
    while (true) {
      const auto first = g.all_reduce_async(std::span(a), std::span(a), ReduceOp::sum);
      const auto second = g.all_reduce_async(std::span(b), std::span(b), ReduceOp::sum);
      second->wait();
      first->wait();
    }
  }));
}

TEST_CASE("a receiver names the sender that was killed", "[fault]") {
  check_survivors(run_ranks(2, {}, [](ProcessGroup& g) {
    std::vector<float> a(10);
    if (g.rank() == kVictim) die();
    g.recv(std::span(a), kVictim);
  }));
}

TEST_CASE("a rank that leaves while others still call is named, and is not called dead",
          "[fault]") {
  const auto outcomes = run_ranks(3, {}, [](ProcessGroup& g) {
    g.barrier();
    if (g.rank() == kVictim) return;
    g.barrier();
  });
  CHECK(outcomes[kVictim].error.empty());
  for (const std::size_t r : {0, 2}) {
    INFO(outcomes[r].error);
    CHECK_THAT(outcomes[r].error, ContainsSubstring("PeerLost: rank 1"));
    CHECK_THAT(outcomes[r].error, ContainsSubstring("has left the group"));
  }
}

TEST_CASE("under mpirun, survivors speak before the launcher ends them", "[fault]") {
  // rank 1 kills itself, in the hidden case below
  const std::string command = std::string(RINGSMITH_SOURCE_DIR) +
                              "/tests/support/mpirun.sh 3 " RINGSMITH_BINARY_DIR
                              "/bin/tests_fault \"rank 1 of a job dies\" 2>&1";
  FILE* const job = popen(command.c_str(), "r");
  REQUIRE(job != nullptr);
  std::string output;
  char line[512];
  while (fgets(line, sizeof line, job) != nullptr) output += line;
  CHECK(pclose(job) != 0);
  INFO(output);
  CHECK_THAT(output, ContainsSubstring("is gone: its process has died [rank 0"));
  CHECK_THAT(output, ContainsSubstring("is gone: its process has died [rank 2"));
}

TEST_CASE("rank 1 of a job dies", "[.]") {
  // Hidden: run by the case above. Catch2's own handler would interfere.
  signal(SIGTERM, SIG_DFL);
  const int status = run_main("job", [] {
    const auto g = init_process_group();
    std::vector<float> data(1000);
    for (int call = 0;; ++call) {
      if (call == 100 && g->rank() == kVictim) die();
      g->all_reduce(std::span(data));
    }
    return 0;
  });
  std::exit(status);
}
