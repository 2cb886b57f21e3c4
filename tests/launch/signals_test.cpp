// Signals to ringrun, and ringrun's own death: what becomes of the ranks.
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <functional>
#include <sstream>
#include <thread>

#include "runtime/launch/failure.hpp"
#include "tests/launch/ringrun.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::testing;
using namespace std::chrono_literals;

namespace {

bool eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

// Not even as a zombie that nobody has waited for: those do nothing.
bool alive(pid_t pid) {
  const std::string status = contents("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name = status.rfind(')');
  return name != std::string::npos && status.size() > name + 2 && status[name + 2] != 'Z';
}

// ringrun in the background; its ranks write their pids, and then "ready", into the folder.
class Running {
 public:
  Running(const std::vector<std::string>& options, const std::string& script) {
    const std::string full = "cd " + folder.path.string() +
                             " && echo $$ > pid.$RANK && trap 'echo usr >> usr.$RANK' USR1 && " +
                             script;
    std::vector<std::string> words{kRingrun};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--nproc-per-node", "2", "--", "sh", "-c", full});
    pid = fork();
    if (pid == 0) {
      setpgid(0, 0);
      const int file = open((folder / "output").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      dup2(file, STDOUT_FILENO);
      dup2(file, STDERR_FILENO);
      std::vector<char*> args;
      for (const std::string& word : words) args.push_back(const_cast<char*>(word.c_str()));
      args.push_back(nullptr);
      execv(args[0], args.data());
      _exit(127);
    }
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() {
    if (!ended_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
  [[nodiscard]] bool ready() const {
    return eventually([&] {
      return !contents(folder / "ready.0").empty() && !contents(folder / "ready.1").empty();
    });
  }
  [[nodiscard]] std::vector<pid_t> pids_in(const std::string& name) const {
    std::vector<pid_t> out;
    for (const char* rank : {".0", ".1"}) {
      std::istringstream in(contents(folder / (name + rank)));
      for (pid_t p = 0; in >> p;) out.push_back(p);
    }
    return out;
  }
  // The exit code; 128 + signal.
  [[nodiscard]] int wait() {
    int status = 0;
    if (!eventually([&] { return waitpid(pid, &status, WNOHANG) == pid; })) return -1;
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  [[nodiscard]] bool ended() const { return !alive(pid); }
  [[nodiscard]] std::string output() const { return contents(folder / "output"); }

  Scratch folder;
  pid_t pid = -1;

 private:
  bool ended_ = false;
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
  CHECK(contents(job.folder / "usr.0") == "usr\n");
  CHECK(contents(job.folder / "usr.1") == "usr\n");
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
  Running job({},
              "trap 'exit 0' TERM; i=0; while :; do i=$((i+1)); echo $i > ready.$RANK; "
              "sleep 0.02; done");
  REQUIRE(job.ready());
  kill(job.pid, SIGTSTP);
  const auto state = [](pid_t pid) {
    const std::string status = contents("/proc/" + std::to_string(pid) + "/stat");
    return status.empty() ? '?' : status[status.rfind(')') + 2];
  };
  CHECK(eventually([&] { return state(job.pid) == 'T'; }));
  for (const pid_t rank : job.pids_in("pid")) CHECK(eventually([&] { return state(rank) == 'T'; }));
  const std::string before = contents(job.folder / "ready.0");
  kill(job.pid, SIGCONT);
  CHECK(eventually([&] {
    const std::string now = contents(job.folder / "ready.0");
    return !now.empty() && now != before;
  }));
  kill(job.pid, SIGTERM);
  CHECK(job.wait() == 128 + SIGTERM);
}
