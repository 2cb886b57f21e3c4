#include "runtime/comm/failure/wait_for_graph.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sys/syscall.h>
#include <thread>

namespace ringsmith::comm {

WaitForGraph::WaitForGraph(const std::vector<Sight>& ranks) {
  for (const Sight& sight : ranks) activities_.push_back(look_at(sight));
}

WaitForGraph::Activity WaitForGraph::look_at(const Sight& sight) {
  const Board& board = *sight.board;
  Activity activity;
  activity.stopped = sight.stopped;
  activity.elsewhere = sight.elsewhere;
  activity.stale = sight.answers != nullptr && board.waits_for.load() < 0;
  const CallRecord* record = &board.record;
  if (activity.stale) {
    const bool second = sight.answers[1].round.load() > sight.answers[0].round.load();
    record = &sight.answers[second ? 1 : 0].record;
  }
  activity.call = record->unpacked();
  activity.sequence = record->sequence.load();
  const std::string site = text_of(sight.sites, record->site.load());
  if (!site.empty()) activity.site = " at " + site;
  activity.busy = !activity.stale && board.busy.load() != 0;
  if (!activity.busy) return activity;
  activity.step = board.step.load();
  // A stopped process waits for no rank, because it would not notice if its peer arrived.
  if (!activity.stopped) activity.waits_for = board.waits_for.load();
  activity.waited = board.waited.load();
  return activity;
}

std::string WaitForGraph::Activity::name_of_call() const {
  return call.describe() + " #" + std::to_string(sequence) + site;
}

std::string WaitForGraph::Activity::describe() const {
  if (!busy && !elsewhere.empty()) return " waits in " + elsewhere;
  if (call.collective == Collective::none) return " has made no call yet";
  std::string text = stopped ? " is stopped in "
                     : stale ? " was last heard of in "
                     : busy  ? " in "
                             : " computing, last call ";
  text += name_of_call();
  if (step >= 0) text += ", step " + std::to_string(step) + ",";
  if (waits_for >= 0)
    text +=
        " waits for rank " + std::to_string(waits_for) + " for " + std::to_string(waited) + " ms";
  return text;
}

int WaitForGraph::culprit_from(int rank) const {
  for (std::size_t hops = 0; hops <= activities_.size(); ++hops) {
    const int next = activity(rank).waits_for;
    if (next < 0) return rank;
    rank = next;
  }
  return -1;
}

std::string WaitForGraph::offence_of(int rank) const {
  const Activity& p = activity(rank);
  if (!p.busy && !p.elsewhere.empty()) return "which waits in " + p.elsewhere;
  if (p.call.collective == Collective::none) return "which has made no call yet";
  if (p.busy) return "which is stuck in " + p.name_of_call();
  return "which has not arrived: " +
         std::string(p.stale ? "last heard of in " : "its last call was ") + p.name_of_call();
}

std::vector<int> WaitForGraph::find_circle() const {
  for (int start = 0; start < static_cast<int>(activities_.size()); ++start) {
    std::vector<int> path;
    int r = start;
    do {
      path.push_back(r);
      r = activity(r).waits_for;
    } while (r >= 0 && std::ranges::find(path, r) == path.end());
    if (r == start) return path;
  }
  return {};
}

std::string WaitForGraph::describe() const {
  std::string text = "Where all ranks are:";
  for (std::size_t r = 0; r < activities_.size(); ++r)
    text += (r == 0 ? " rank " : "; rank ") + std::to_string(r) + activities_[r].describe();
  const std::vector<int> circle = find_circle();
  if (circle.empty()) return text;
  text += ". They wait in a cycle: rank " + std::to_string(circle.front());
  for (std::size_t i = 1; i <= circle.size(); ++i)
    text += " for rank " + std::to_string(circle[i % circle.size()]);
  const bool all_send = std::ranges::all_of(
      circle, [&](int r) { return activity(r).call.collective == Collective::send; });
  if (all_send)
    text +=
        ", all in send(): a long message waits for its receiver, so one of them must receive "
        "before it sends";
  return text;
}

namespace {

struct SystemCall {
  long number;
  const char* name;
};
constexpr SystemCall kSystemCalls[] = {
#ifdef SYS_open
    {SYS_open, "open() of a file or a FIFO"},
#endif
    {SYS_openat, "open() of a file or a FIFO"},
    {SYS_read, "read()"},
    {SYS_write, "write()"},
    {SYS_nanosleep, "sleep()"},
    {SYS_clock_nanosleep, "sleep()"},
    {SYS_futex, "a wait for another thread"},
#ifdef SYS_poll
    {SYS_poll, "poll()"},
#endif
    {SYS_ppoll, "poll()"},
    {SYS_wait4, "a wait for a child"},
    {SYS_waitid, "a wait for a child"},
    {SYS_connect, "connect()"},
    {SYS_accept, "accept()"},
    {SYS_accept4, "accept()"},
    {SYS_recvfrom, "recv()"},
    {SYS_flock, "flock()"},
    {SYS_fcntl, "a lock on a file"},
};

// Returns the system call in which the first thread of a process sleeps, e.g. " in open() of a file
// or a FIFO". If it is unknown, returns e.g. " (in the kernel: wait_for_partner)", or "".
std::string call_of(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  long number = -1;
  if (std::ifstream(folder + "/syscall") >> number)
    for (const SystemCall& call : kSystemCalls)
      if (call.number == number) return std::string(" in ") + call.name;
  std::string function;
  std::ifstream(folder + "/wchan") >> function;
  return function.empty() || function == "0" ? "" : " (in the kernel: " + function + ")";
}

// Returns the state letter that ps shows, or 0 if this process cannot see it.
char state_letter(pid_t pid) {
  std::string line;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), line);
  // The format is PID (NAME) STATE ...; the name may contain anything, including brackets.
  const std::size_t name_end = line.rfind(") ");
  return name_end == std::string::npos || name_end + 2 >= line.size() ? '\0' : line[name_end + 2];
}

// A waiting process wakes up now and then, so a process counts as running only if five looks in a
// row find it running.
char settled_letter(pid_t pid) {
  char letter = state_letter(pid);
  for (int look = 1; look < 5 && letter == 'R'; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    letter = state_letter(pid);
  }
  return letter;
}

}  // namespace

bool is_stopped(pid_t pid) {
  const char letter = state_letter(pid);
  return letter == 'T' || letter == 't';
}

std::string state_of_process(pid_t pid) {
  switch (settled_letter(pid)) {
    case 'T':
      return ": its process is stopped by a signal; kill -CONT " + std::to_string(pid) +
             " lets it continue";
    case 't':
      return ": its process is stopped by a debugger";
    case 'R':
      return ": its process computes";
    case 'S':
      return ": its process sleeps" + call_of(pid);
    case 'D':
      return ": its process waits for a disk or a device";
    case 'Z':
    case 'X':
      return ": its process has ended";
    default:
      return {};
  }
}

}  // namespace ringsmith::comm
