// Signals to ringrun, and ringrun's own death: what becomes of the ranks.
#include <chrono>
#include <csignal>
#include <sstream>
#include <thread>

#include "runtime/launch/failure.hpp"
#include "tests/launch/background.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::testing;
using namespace std::chrono_literals;

namespace {

// ringrun with two ranks, in the background; they write their pids, and then "ready", into a
// folder.
struct Running {
  Running(const std::vector<std::string>& options, const std::string& script)
      : job(with(options, "cd " + folder.path.string() +
                              " && echo $$ > pid.$RANK && trap 'echo usr >> usr.$RANK' USR1 && " +
                              script)),
        pid(job.pid()) {}
  static std::vector<std::string> with(const std::vector<std::string>& options,
                                       const std::string& script) {
    std::vector<std::string> words{kRingrun};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--nproc-per-node", "2", "--", "sh", "-c", script});
    return words;
  }
  [[nodiscard]] bool ready() const {
    return eventually([&] {
      return !read_text(folder / "ready.0").empty() && !read_text(folder / "ready.1").empty();
    });
  }
  [[nodiscard]] std::vector<pid_t> pids_in(const std::string& name) const {
    std::vector<pid_t> out;
    for (const char* rank : {".0", ".1"}) {
      std::istringstream in(read_text(folder / (name + rank)));
      for (pid_t p = 0; in >> p;) out.push_back(p);
    }
    return out;
  }
  [[nodiscard]] int wait() { return job.wait(); }
  [[nodiscard]] bool ended() const { return !alive(pid); }
  [[nodiscard]] std::string output() const { return job.output(); }

  TemporaryFolder folder;
  Background job;
  pid_t pid;
};

const std::string kForEver = "echo y > ready.$RANK; while :; do sleep 0.02; done";

}  // namespace

TEST_CASE("signals that end ringrun reach the ranks as what they are", "[signals]") {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    Running job(
        {}, "for s in TERM INT HUP QUIT; do trap \"echo got $s; exit 0\" $s; done; " + kForEver);
    REQUIRE(job.ready());
    kill(job.pid, signal);
    CHECK(job.wait() == 128 + signal);
    const std::string name = ringsmith::launch::signal_name(signal);
    INFO(job.output());
    for (const char* rank : {"0", "1"})
      CHECK_THAT(job.output(),
                 ContainsSubstring(std::string("[") + rank + "] got " + name.substr(3)));
    CHECK_THAT(job.output(), ContainsSubstring("ringrun: got " + name));
  }
}

TEST_CASE("ranks that ignore the signal are killed after the grace, or at a second signal",
          "[signals]") {
  {
    Running job({"--grace", "0.2"}, "trap '' TERM; " + kForEver);
    REQUIRE(job.ready());
    kill(job.pid, SIGTERM);
    CHECK(job.wait() == 128 + SIGTERM);
    for (const pid_t rank : job.pids_in("pid")) CHECK_FALSE(alive(rank));
  }
  {
    Running job({"--grace", "600"}, "trap '' TERM INT; " + kForEver);
    REQUIRE(job.ready());
    // Two that come together are one to the kernel; until it ends, then.
    CHECK(eventually([&] { return kill(job.pid, SIGINT) != 0 || job.ended(); }));
    CHECK(job.wait() == 128 + SIGINT);
    for (const pid_t rank : job.pids_in("pid")) CHECK_FALSE(alive(rank));
  }
}

TEST_CASE("SIGUSR1 is passed on and ends nothing", "[signals]") {
  Running job({}, "while [ ! -s usr.$RANK ]; do echo y > ready.$RANK; sleep 0.02; done; exit 0");
  REQUIRE(job.ready());
  kill(job.pid, SIGUSR1);
  CHECK(job.wait() == 0);
  CHECK(read_text(job.folder / "usr.0") == "usr\n");
  CHECK(read_text(job.folder / "usr.1") == "usr\n");
}

TEST_CASE("when ringrun is killed, nothing of the job is left", "[signals]") {
  // Each rank has a child in its group, and ignores what can be ignored.
  Running job({}, "trap '' TERM HUP INT; sleep 300 & echo $! > child.$RANK; " + kForEver);
  REQUIRE(job.ready());
  auto pids = job.pids_in("pid");
  const auto children = job.pids_in("child");
  pids.insert(pids.end(), children.begin(), children.end());
  REQUIRE(pids.size() == 4);
  for (const pid_t pid : pids) CHECK(alive(pid));
  kill(job.pid, SIGKILL);
  CHECK(job.wait() == 128 + SIGKILL);
  for (const pid_t pid : pids) CHECK(eventually([pid] { return !alive(pid); }));
}

TEST_CASE("SIGTSTP stops the ranks with ringrun, and they go on with it", "[signals]") {
  // No program in the loop: a shell whose child of vfork() was stopped before it could execute
  // is itself in state D, not T, until that child goes on (seen in 3 of 400 stops of dash).
  // It appends: a file that is written anew all the time is found empty most of the time, where
  // reader and writer share a core.
  Running job({}, "trap 'exit 0' TERM; while :; do echo y >> ready.$RANK; done");
  REQUIRE(job.ready());
  kill(job.pid, SIGTSTP);
  const auto state = [](pid_t pid) {
    const std::string status = read_text("/proc/" + std::to_string(pid) + "/stat");
    return status.empty() ? '?' : status[status.rfind(')') + 2];
  };
  CHECK(eventually([&] { return state(job.pid) == 'T'; }));
  for (const pid_t rank : job.pids_in("pid")) CHECK(eventually([&] { return state(rank) == 'T'; }));
  const auto before = std::filesystem::file_size(job.folder / "ready.0");
  kill(job.pid, SIGCONT);
  CHECK(eventually([&] { return std::filesystem::file_size(job.folder / "ready.0") > before; }));
  kill(job.pid, SIGTERM);
  CHECK(job.wait() == 128 + SIGTERM);
}
