#include "labs/kit/nodes/nodes.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <signal.h>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "labs/kit/channel.hpp"
#include "labs/kit/driver.hpp"
#include "labs/kit/nodes/staged.hpp"
#include "labs/kit/nodes/whereabouts.hpp"
#include "labs/kit/outcome.hpp"

namespace kit {
namespace {

std::string& own_host() {
  static std::string name = "login";
  return name;
}

// Closes the judge's channel in the child, once: in a child of this child, the same descriptor may
// be a pipe that was opened later.
void forget_the_judge() {
  static bool forgotten = false;
  if (!std::exchange(forgotten, true)) channel::forget();
}

}  // namespace

const std::string& host_name() { return own_host(); }

struct Nodes::Process {
  pid_t pid;
  int answers;  // pipe
  std::string node;
  Seat seat;
  Whereabouts& place;
  bool waited_for = false, ended_by_us = false;
  Ended how = {};
  Record seen = {};
};

Nodes::Nodes(std::vector<std::string> names, Folder folder, Program program)
    : folder_(std::move(folder)), names_(std::move(names)), program_(std::move(program)) {
  whereabouts();  // before the first fork
  describe_hangs_with(describe_whereabouts);
}

Nodes::~Nodes() {
  for (auto& one : processes_) {
    if (!one->waited_for) {
      kill(one->pid, SIGKILL);
      waitpid(one->pid, nullptr, 0);
    }
    close(one->answers);
  }
}

Nodes::Process& Nodes::find(int process) {
  for (auto& one : processes_)
    if (one->pid == process && !one->waited_for) return *one;
  throw Misuse{"process " + std::to_string(process) +
               " was not started here, or has already been waited for"};
}

int Nodes::start(const std::string& node, const Seat& seat) {
  if (std::find(names_.begin(), names_.end(), node) == names_.end())
    throw std::runtime_error("there is no node named " + node);
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  Whereabouts& place =
      new_whereabouts("rank " + std::to_string(seat.rank) + " of " + seat.job + " on " + node);
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("fork failed");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // if the launcher is killed, its job ends too
    forget_the_judge();
    close(ends[0]);
    be_at(place);
    own_host() = node;
    work_and_report(
        ends[1], [&](Observation& seen) { return program_(seat, seen); },
        [] { whereabouts().ended = true; });
  }
  close(ends[1]);
  processes_.push_back(std::make_unique<Process>(Process{pid, ends[0], node, seat, place}));
  return pid;
}

Ended Nodes::settle(Process& one, int status) {
  one.waited_for = one.place.ended = true;
  one.how.process = one.pid;
  if (WIFSIGNALED(status)) one.how.signal = WTERMSIG(status);
  if (WIFEXITED(status)) one.how.code = WEXITSTATUS(status);
  std::string text;
  char piece[1 << 16];
  for (ssize_t got; (got = read(one.answers, piece, sizeof piece)) > 0;)
    text.append(piece, std::size_t(got));
  if (one.how.signal == 0 && !text.empty()) one.seen = Record::decode(text);
  return one.how;
}

Ended Nodes::wait(int process) {
  const bool left = std::any_of(processes_.begin(), processes_.end(),
                                [](const auto& one) { return !one->waited_for; });
  if (!left) throw Misuse{"wait: all processes have already been waited for"};
  std::string whom = "any process";
  if (process != any) whom = "rank " + std::to_string(find(process).seat.rank);
  const Doing doing("launcher: waits for the end of " + whom);
  int status = 0;
  const pid_t pid = waitpid(process == any ? -1 : process, &status, 0);
  if (pid < 0) throw std::runtime_error(std::string("waitpid: ") + std::strerror(errno));
  return settle(find(pid), status);
}

void Nodes::end(int process) {
  Process& one = find(process);
  one.ended_by_us = true;
  kill(one.pid, SIGKILL);
}

void StagedNodes::observe(Observation& out, bool deaths_are_planned) {
  std::int64_t running = 0, zombies = 0;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    Process& one = *processes_[i];
    if (!one.waited_for) {
      int status = 0;
      const bool zombie = waitpid(one.pid, &status, WNOHANG) == one.pid;
      ++(zombie ? zombies : running);
      if (!zombie) kill(one.pid, SIGKILL), waitpid(one.pid, &status, 0), one.ended_by_us = true;
      settle(one, status);
    }
    const std::string who = "rank " + std::to_string(one.seat.rank) + " on " + one.node;
    if (one.seen.has("kit.status")) take_outcome(one.seen, who);
    if (one.how.signal != 0 && !one.ended_by_us && !deaths_are_planned)
      throw std::runtime_error(who + " was killed by " + strsignal(one.how.signal));
    const std::string suffix = "." + std::to_string(i);
    out.merge(one.seen, suffix);
    out.put("node" + suffix, one.node);
    out.put("job" + suffix, one.seat.job);
    out.put("rank" + suffix, one.seat.rank);
    out.put("world" + suffix, one.seat.world);
    out.put("code" + suffix, one.how.code);
    out.put("ended" + suffix, one.ended_by_us);
  }
  out.put("processes", processes_.size());
  out.put("running", running);
  out.put("zombies", zombies);
}

void wait_until_asked(int processes, const std::string& but) {
  using std::chrono::milliseconds;
  for (int turn = 0; turn < 200 && processes_that_asked(" of " + but) < processes; ++turn)
    std::this_thread::sleep_for(milliseconds(10));
  std::this_thread::sleep_for(milliseconds(100));
}

}  // namespace kit
