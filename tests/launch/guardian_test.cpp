// If the guardian or ringrun itself is stopped or killed, the job still ends within seconds and
// leaves no process. RINGSMITH_TEST_GUARDIANS sets the number of rounds at random moments, and
// RINGSMITH_TEST_SEED determines the moments:
//   RINGSMITH_TEST_GUARDIANS=50 build/release/bin/tests_launch "[guardian]"
#include <cstdlib>
#include <random>
#include <sys/ptrace.h>

#include "tests/launch/background.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/processes_of.hpp"

using namespace ringsmith::testing;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLimit = 10s;  // from the last signal to ringrun's end

// A job of two ranks. The environment of all processes that they start contains the folder's name.
struct Job {
  explicit Job(const std::string& script)
      : mark("RINGSMITH_TEST_JOB=" + folder.path.string()),
        job({"/usr/bin/env", mark, kRingrun, "--grace", "1", "--nproc-per-node", "2", "--", "sh",
             "-c", "cd " + folder.path.string() + "; " + script}) {}
  [[nodiscard]] bool ready() const {
    return eventually([&] {
      return !read_text(folder / "ready.0").empty() && !read_text(folder / "ready.1").empty();
    });
  }
  [[nodiscard]] pid_t guardian() const { return child_named(job.pid(), "ringrun-guard"); }
  [[nodiscard]] bool nothing_left() const {
    return eventually([&] { return processes_with(mark).empty(); });
  }

  TemporaryFolder folder;
  std::string mark;
  Background job;
};

const std::string kWithChild = "sleep 300 & echo y > ready.$RANK; wait";

enum class Act { stop, kill, hold };
enum class End { asked, rank_fails, well, killed };

// Holds a process like a debugger, so that only SIGKILL affects it. Returns false if not permitted.
bool hold(pid_t pid) {
  return ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) == 0 &&
         ptrace(PTRACE_INTERRUPT, pid, nullptr, nullptr) == 0;
}

void check(Act act, End end) {
  const std::string fails =
      "[ $RANK = 1 ] && { while ! [ -e go ]; do sleep 0.01; done; exit 7; }; ";
  const std::string ends = "echo y > ready.$RANK; while ! [ -e go ]; do sleep 0.01; done; exit 0";
  Job job(end == End::rank_fails ? "echo y > ready.$RANK; " + fails + kWithChild
          : end == End::well     ? ends
                                 : kWithChild);
  REQUIRE(job.ready());
  // Waits for the guardian, which sets its name only when it first runs.
  REQUIRE(eventually([&] { return job.guardian() > 0; }));
  const pid_t guardian = job.guardian();
  if (act == Act::hold && !hold(guardian)) {
    WARN("not run: no right to trace a process");
    return;
  }
  if (act != Act::hold) kill(guardian, act == Act::kill ? SIGKILL : SIGSTOP);
  if (act == Act::kill) REQUIRE(eventually([&] { return !alive(guardian); }));
  const auto from = Clock::now();
  if (end == End::asked) kill(job.job.pid(), SIGTERM);
  if (end == End::killed) kill(job.job.pid(), SIGKILL);
  if (end == End::rank_fails || end == End::well) write_text(job.folder / "go", "y");
  const int code = job.job.wait();
  if (act == Act::hold) {  // the tracer must reap the guardian before ringrun can
    int status = 0;
    CHECK(eventually([&] {
      return waitpid(guardian, &status, __WALL | WNOHANG) == guardian && WIFSIGNALED(status);
    }));
    CHECK(WTERMSIG(status) == SIGKILL);
  }
  INFO("act " << int(act) << ", end " << int(end) << "\n" << job.job.output());
  CHECK(Clock::now() - from < kLimit);
  CHECK(job.nothing_left());
  CHECK(eventually([&] { return !alive(guardian); }));
  const std::string said = job.job.output();
  switch (end) {
    case End::asked:
      CHECK(code == 128 + SIGTERM);
      CHECK_THAT(said, ContainsSubstring("got SIGTERM, and ended all ranks"));
      break;
    case End::rank_fails:
      CHECK(code == 7);
      CHECK_THAT(said, ContainsSubstring("rank 1 failed first: exit code 7"));
      break;
    case End::well:
      CHECK(code == 0);
      break;
    case End::killed:
      CHECK(code == 128 + SIGKILL);
  }
  if (act == Act::kill && end != End::killed)
    CHECK_THAT(said, ContainsSubstring("its guardian (pid " + std::to_string(guardian) +
                                       ") has ended: signal 9"));
}

long from_environment(const char* name, long otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::atol(text) : otherwise;
}

// Stops or kills the guardian, and perhaps stops ringrun, at a random moment of a launch, which
// takes about 20 ms. Ends the job another random moment later.
void random_round(std::mt19937& random) {
  const auto below = [&random](unsigned n) { return random() % n; };
  const bool kill_guardian = below(2) == 0, kill_launcher = below(3) == 0, pause = below(3) == 0;
  // Only the guardian or ringrun ends the ranks' children. If both die, the ranks must have none.
  Job job(kill_guardian && kill_launcher ? "exec sleep 300" : "sleep 300 & wait");
  const pid_t launcher = job.job.pid();
  const std::string name = "/proc/" + std::to_string(launcher) + "/comm";
  REQUIRE(eventually([&] { return read_text(name) == "ringrun\n"; }));
  std::this_thread::sleep_for(std::chrono::microseconds(below(40'000)));
  const pid_t guardian = job.guardian();
  if (guardian > 0) kill(guardian, kill_guardian ? SIGKILL : SIGSTOP);
  if (pause) kill(launcher, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::microseconds(below(40'000)));
  if (pause) kill(launcher, SIGCONT);
  const auto from = Clock::now();
  kill(launcher, kill_launcher ? SIGKILL : SIGTERM);
  const int code = job.job.wait();
  INFO("guardian " << (kill_guardian ? "killed" : "stopped") << ", ringrun "
                   << (pause ? "stopped, " : "") << (kill_launcher ? "killed" : "asked to end")
                   << "\n"
                   << job.job.output());
  CHECK(code == 128 + (kill_launcher ? SIGKILL : SIGTERM));
  CHECK(Clock::now() - from < kLimit);
  CHECK(job.nothing_left());
  if (guardian > 0) CHECK(eventually([&] { return !alive(guardian); }));
}

}  // namespace

TEST_CASE("a guardian that is stopped or killed holds up no end of a job", "[guardian]") {
  for (const End end : {End::asked, End::rank_fails, End::well, End::killed}) check(Act::stop, end);
  // If the guardian and ringrun are both killed, the kernel ends the ranks but not their children,
  // so End::killed is left out.
  for (const End end : {End::asked, End::rank_fails, End::well}) check(Act::kill, end);
  check(Act::hold, End::asked);
}

TEST_CASE("a launcher that is stopped is passed over: its ranks go on", "[guardian]") {
  Job job("echo y > ready.$RANK; while ! [ -e go ]; do sleep 0.01; done; echo done > done.$RANK");
  REQUIRE(job.ready());
  kill(job.job.pid(), SIGSTOP);
  write_text(job.folder / "go", "y");
  for (const char* rank : {"done.0", "done.1"})
    CHECK(eventually([&] { return read_text(job.folder / rank) == "done\n"; }));
  kill(job.job.pid(), SIGCONT);
  CHECK(job.job.wait() == 0);
  CHECK(job.nothing_left());
}

TEST_CASE("guardians stopped and killed at random moments", "[guardian]") {
  constexpr long kFew = 3;
  const long rounds = from_environment("RINGSMITH_TEST_GUARDIANS", kFew);
  const auto seed = static_cast<std::uint32_t>(
      from_environment("RINGSMITH_TEST_SEED", static_cast<long>(std::random_device()())));
  std::mt19937 random(seed);
  for (long n = 0; n < rounds; ++n) {
    INFO("RINGSMITH_TEST_SEED=" << seed << ", round " << n);
    random_round(random);
  }
}
