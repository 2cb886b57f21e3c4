// Tests spawn(): if a rank throws, exits, is killed or hangs, the parent must soon throw an error
// of one line that names the rank, and leave no process behind.
#include "runtime/job/launch/spawn.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/support/alive.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace std::chrono_literals;
using launch::SpawnOptions;
using Group = std::shared_ptr<comm::ProcessGroup>;

namespace {

constexpr int kMost = 8;

// Results that the ranks leave for the test, in shared memory.
struct Seen {
  std::array<std::atomic<pid_t>, kMost> pid{};
  std::array<std::atomic<double>, kMost> value{};
};

struct SharedSeen {
  SharedSeen() {
    void* const memory =
        mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    seen = static_cast<Seen*>(memory);
  }
  ~SharedSeen() { munmap(seen, sizeof(Seen)); }
  SharedSeen(const SharedSeen&) = delete;
  SharedSeen& operator=(const SharedSeen&) = delete;
  Seen* seen = nullptr;
};

struct Failed {
  std::string what;
  int rank = -1, code = 0;
  double seconds = 0;
  bool late = false;  // the parent threw a TimeoutError
};

// Returns the error of a spawn that must fail and leave no rank behind.
Failed spawn_and_fail(int ranks, const std::function<void(const Group&)>& act,
                      const SpawnOptions& options = {}) {
  const SharedSeen shared;
  const auto begin = std::chrono::steady_clock::now();
  Failed out;
  try {
    launch::spawn(
        ranks,
        [&](const Group& group) {
          signal(SIGTERM, SIG_DFL);  // Catch2's handler would report it
          shared.seen->pid[static_cast<std::size_t>(group->rank())] = getpid();
          group->barrier();  // every rank has set its pid
          act(group);
        },
        options);
    FAIL("spawn() returned");
  } catch (const launch::RankFailed& e) {
    out = {e.what(), e.rank(), static_cast<int>(e.exit_code())};
  } catch (const TimeoutError& e) {
    out = {e.what(), -1, static_cast<int>(e.exit_code())};
    out.late = true;
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (int r = 0; r < ranks; ++r) {
    const pid_t pid = shared.seen->pid[static_cast<std::size_t>(r)];
    INFO("rank " << r << ", pid " << pid);
    CHECK(pid > 0);
    CHECK(kill(pid, 0) != 0);
  }
  return out;
}

[[noreturn]] void hang() {
  for (;;) std::this_thread::sleep_for(1h);
}

SpawnOptions short_timeout(std::chrono::milliseconds timeout) {
  SpawnOptions options;
  options.group.timeout = timeout;
  return options;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("1, 2 and 5 spawned ranks are a group, of this process's memory and its children",
          "[spawn]") {
  const std::vector<int> made_before{3, 1, 4};
  for (const int world : {1, 2, 5}) {
    const SharedSeen shared;
    launch::spawn(world, [&](const Group& group) {
      const auto me = static_cast<std::size_t>(group->rank());
      REQUIRE(group->size() == world);
      shared.seen->pid[me] = getpid();
      std::vector<double> sum{static_cast<double>(group->rank() + 1),
                              static_cast<double>(made_before[2])};
      group->all_reduce(std::span(sum));
      shared.seen->value[me] = sum[0] * 1000 + sum[1];
    });
    std::vector<pid_t> pids;
    for (int r = 0; r < world; ++r) {
      const auto i = static_cast<std::size_t>(r);
      CHECK(shared.seen->value[i] == 1000.0 * world * (world + 1) / 2 + 4.0 * world);
      CHECK(shared.seen->pid[i] != getpid());
      pids.push_back(shared.seen->pid[i]);
    }
    std::sort(pids.begin(), pids.end());
    CHECK(std::unique(pids.begin(), pids.end()) == pids.end());
  }
}

TEST_CASE("in a spawned rank init_process_group() makes further groups of the same ranks",
          "[spawn]") {
  const SharedSeen shared;
  launch::spawn(3, [&](const Group& group) {
    const Group second = comm::init_process_group();
    std::vector<double> sum{1};
    second->all_reduce(std::span(sum));
    group->all_reduce(std::span(sum));
    shared.seen->value[static_cast<std::size_t>(second->rank())] = sum[0];
  });
  for (std::size_t r = 0; r < 3; ++r) CHECK(shared.seen->value[r] == 9);
}

TEST_CASE("a rank that throws: its words, its code, its rank", "[spawn]") {
  const Failed f = spawn_and_fail(3, [](const Group& group) {
    if (group->rank() == 1) throw UsageError("cannot read 'digits': no such file");
    group->barrier();
  });
  CHECK(f.rank == 1);
  CHECK(f.code == static_cast<int>(ExitCode::usage));
  CHECK(contains(f.what, "rank 1 of 3 (pid "));
  CHECK(contains(f.what, ") failed: cannot read 'digits': no such file"));
  CHECK_FALSE(contains(f.what, "\n"));
  CHECK(f.seconds < 5);
}

TEST_CASE("a rank that throws what is no Error, or nothing known", "[spawn]") {
  Failed f = spawn_and_fail(2, [](const Group& group) {
    if (group->rank() == 0) throw std::out_of_range("vector::at");
    hang();
  });
  CHECK(f.rank == 0);
  CHECK(f.code == 1);
  CHECK(contains(f.what, "failed: vector::at"));
  f = spawn_and_fail(2, [](const Group& group) {
    if (group->rank() == 1) throw 5;
    hang();
  });
  CHECK(f.rank == 1);
  CHECK(contains(f.what, "the exception thrown is not a std::exception"));
}

TEST_CASE("a rank that exits with 3 is named, though 3 is a witness's code", "[spawn]") {
  const Failed f = spawn_and_fail(5, [](const Group& group) {
    if (group->rank() == 4) _exit(3);
    hang();
  });
  CHECK(f.rank == 4);
  CHECK(f.code == 3);
  CHECK(contains(f.what, "rank 4 of 5 (pid "));
  CHECK(contains(f.what, "ended with exit code 3"));
}

TEST_CASE("a rank that is killed is named, not those that lose it", "[spawn]") {
  for (const int signal : {SIGKILL, SIGSEGV}) {
    const Failed f = spawn_and_fail(3, [signal](const Group& group) {
      if (group->rank() == 2) {
        ::signal(signal, SIG_DFL);  // replaces the handlers of Catch2 and the sanitizers
        (void)raise(signal);
      }
      group->barrier();
    });
    INFO(f.what);
    CHECK(f.rank == 2);
    CHECK(f.code == 128 + signal);
    CHECK(contains(f.what, "was ended by signal " + std::to_string(signal)));
    CHECK(f.seconds < 5);
  }
}

TEST_CASE("a rank that hangs while others wait for it is ended at their deadline", "[spawn]") {
  const Failed f = spawn_and_fail(
      3,
      [](const Group& group) {
        if (group->rank() == 1) hang();
        group->barrier();
      },
      short_timeout(2s));
  INFO(f.what);
  CHECK(f.code == static_cast<int>(ExitCode::timeout));
  CHECK(contains(f.what, "waited 2000 ms for rank 1"));
  CHECK(f.seconds > 1.9);
  CHECK(f.seconds < 12);
}

TEST_CASE("a rank that never comes to the meeting is named", "[spawn]") {
  const SpawnOptions options = short_timeout(2s);
  const auto begin = std::chrono::steady_clock::now();
  try {
    launch::spawn(
        3,
        [](const Group& group) {
          signal(SIGTERM, SIG_DFL);
          if (group->rank() == 0) hang();
          (void)comm::init_process_group();
        },
        options);
    FAIL("spawn() returned");
  } catch (const launch::RankFailed& e) {
    INFO(e.what());
    CHECK(static_cast<int>(e.exit_code()) == static_cast<int>(ExitCode::timeout));
    CHECK(contains(e.what(), "has waited 2000 ms for the others: rank 0 did not arrive"));
  }
  CHECK(std::chrono::steady_clock::now() - begin < 12s);
}

TEST_CASE("a rank that stays when the others have ended well is late, even if it ignores SIGTERM",
          "[spawn]") {
  SpawnOptions options;
  options.exit_timeout = 300ms;
  options.grace = 300ms;
  const Failed f = spawn_and_fail(
      3,
      [](const Group& group) {
        if (group->rank() != 1) return;
        signal(SIGTERM, SIG_IGN);
        hang();
      },
      options);
  INFO(f.what);
  CHECK(f.late);
  CHECK(contains(f.what, "rank 1 (pid "));
  CHECK(contains(f.what, "still ran 0.3 s after the first rank had ended"));
  CHECK(f.seconds > 0.5);
  CHECK(f.seconds < 8);
}

TEST_CASE("a rank that is stopped when another fails is ended too", "[spawn]") {
  const Failed f = spawn_and_fail(2, [](const Group& group) {
    if (group->rank() == 0) {
      (void)raise(SIGSTOP);
      hang();
    }
    std::this_thread::sleep_for(100ms);
    throw UsageError("no more");
  });
  CHECK(f.rank == 1);
  CHECK(f.seconds < 5);
}

TEST_CASE("what spawn() refuses, and that it works again after", "[spawn]") {
  const auto refused = [](int ranks) -> std::string {
    try {
      launch::spawn(ranks, [](const Group&) {});
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  };
  CHECK(contains(refused(0), "spawn: 0 ranks"));
  CHECK(contains(refused(-1), "spawn: -1 ranks"));
  {
    std::atomic<bool> stop{false};
    std::thread other([&] {
      while (!stop) std::this_thread::sleep_for(1ms);
    });
    CHECK(contains(refused(2), "spawn: 2 threads run in this process"));
    stop = true;
    other.join();
  }
  for (const auto& [name, value] : {std::pair{"RANK", "1"},
                                    {"WORLD_SIZE", "2"},
                                    {"MASTER_ADDR", "127.0.0.1"},
                                    {"MASTER_PORT", "4711"}})
    setenv(name, value, 1);
  CHECK(contains(refused(2), "spawn: this process is a rank already (--bootstrap env)"));
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
  signal(SIGCHLD, SIG_IGN);
  CHECK(contains(refused(2), "ignores SIGCHLD"));
  signal(SIGCHLD, SIG_DFL);
  CHECK(refused(2).empty());
}

// Standard output is a file, so it is fully buffered, and fork() copies the buffer to the ranks.
TEST_CASE("what was printed before is printed once, and what the ranks print is kept", "[spawn]") {
  const int file = memfd_create("out", 0);
  const int before = dup(STDOUT_FILENO);
  std::fflush(stdout);
  dup2(file, STDOUT_FILENO);
  std::printf("before;");
  launch::spawn(3, [](const Group& group) {
    for (int r = 0; r < group->size(); ++r) {
      if (r == group->rank()) std::printf("rank %d;", r);
      if (r == group->rank()) std::fflush(stdout);
      group->barrier();
    }
    if (group->rank() == 2) std::printf("not flushed;");
  });
  std::fflush(stdout);
  dup2(before, STDOUT_FILENO);
  close(before);
  std::string text(1000, '\0');
  text.resize(static_cast<std::size_t>(pread(file, text.data(), text.size(), 0)));
  close(file);
  CHECK(text == "before;rank 0;rank 1;rank 2;not flushed;");
}

TEST_CASE("when the parent is killed, its ranks are gone with it", "[spawn]") {
  const SharedSeen shared;
  const pid_t parent = fork();
  if (parent == 0) {
    launch::spawn(3, [&](const Group& group) {
      shared.seen->pid[static_cast<std::size_t>(group->rank())] = getpid();
      hang();
    });
    _exit(0);
  }
  const auto all_there = [&] {
    for (std::size_t r = 0; r < 3; ++r)
      if (shared.seen->pid[r] == 0) return false;
    return true;
  };
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (!all_there() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(1ms);
  REQUIRE(all_there());
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  const auto any_left = [&] {
    for (std::size_t r = 0; r < 3; ++r)
      if (testing::alive(shared.seen->pid[r])) return true;
    return false;
  };
  while (any_left() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(1ms);
  CHECK_FALSE(any_left());
}
