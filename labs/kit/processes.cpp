#include "labs/kit/processes.hpp"

#include <cstring>
#include <fcntl.h>
#include <new>
#include <poll.h>
#include <signal.h>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "labs/kit/board.hpp"
#include "labs/kit/channel.hpp"
#include "labs/kit/driver.hpp"
#include "labs/kit/outcome.hpp"

namespace kit {
namespace {

const Board* watched_boards = nullptr;  // for the watchdog
int watched_world = 0;

void* shared(std::size_t bytes) {
  void* at =
      mmap(nullptr, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  return at;
}

struct Child {
  pid_t pid = -1;
  int answers = -1;  // pipe
  std::string answer;
  Record seen = {};
  bool open = true;
};

class Family {
 public:
  Family(const ProcessOptions& options, Board* boards) : options_(options), boards_(boards) {}
  ~Family() {
    for (Child& child : children_) {
      if (child.pid > 0) kill(child.pid, SIGKILL);
      if (child.pid > 0) waitpid(child.pid, nullptr, 0);
      if (child.answers >= 0) close(child.answers);
    }
  }

  void start(const std::function<void(Member&, Observation&)>& body,
             const std::function<Member(int)>& member) {
    children_.resize(std::size_t(options_.world));
    for (int r = 0; r < options_.world; ++r) {
      int ends[2];
      if (pipe(ends) != 0) throw std::runtime_error("no pipe");
      Child& child = children_[std::size_t(r)];
      child.pid = fork();
      if (child.pid < 0) throw std::runtime_error("fork failed");
      if (child.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        channel::forget();
        close(ends[0]);
        for (const Child& other : children_)
          if (other.answers >= 0) close(other.answers);
        self() = {&boards_[r], options_.pauses, options_.seed * 1000003 + std::uint64_t(r) + 1};
        work_and_report(
            ends[1],
            [&](Observation& seen) {
              Member mine = member(r);
              body(mine, seen);
              return 0;
            },
            [&] { boards_[r].done = true; });
      }
      close(ends[1]);
      child.answers = ends[0];
    }
  }

  // Reads the answers and checks the boards until all pipes are closed.
  void collect() {
    while (listen()) {
      std::uint64_t now = 0;
      for (int r = 0; r < options_.world; ++r) now += boards_[r].moves + boards_[r].waits;
      if (options_.kill_rank >= 0 && now >= options_.kill_after && !killed_) {
        const pid_t pid = children_[std::size_t(options_.kill_rank)].pid;
        killed_ = pid > 0;  // -1: the rank has already ended
        if (killed_) kill(pid, SIGKILL);
      }
      if (all_stuck(boards_, options_.world))
        throw Hang{"no rank can continue\n" + describe(waits_of(boards_, options_.world))};
    }
  }

  void merge(Observation& out) {
    for (int r = 0; r < options_.world; ++r)
      out.merge(children_[std::size_t(r)].seen, "." + std::to_string(r));
  }

 private:
  // Waits briefly for answers; returns false if none is outstanding. A child that ends without an
  // answer, or with an error, ends the run, because the others may be waiting for it forever.
  bool listen() {
    std::vector<pollfd> polled;
    std::vector<int> ranks;
    for (int r = 0; r < options_.world; ++r)
      if (children_[std::size_t(r)].open) {
        polled.push_back({children_[std::size_t(r)].answers, POLLIN, 0});
        ranks.push_back(r);
      }
    if (polled.empty()) return false;
    poll(polled.data(), polled.size(), options_.kill_rank >= 0 && !killed_ ? 1 : 10);
    for (std::size_t i = 0; i < polled.size(); ++i)
      if (polled[i].revents != 0) hear(ranks[i]);
    return true;
  }

  void hear(int rank) {
    Child& child = children_[std::size_t(rank)];
    char piece[1 << 16];
    const ssize_t got = read(child.answers, piece, sizeof piece);
    if (got > 0) {
      child.answer.append(piece, std::size_t(got));
      return;
    }
    child.open = false;
    int status = 0;
    waitpid(child.pid, &status, 0);
    child.pid = -1;
    const std::string who = "rank " + std::to_string(rank);
    if (killed_ && rank == options_.kill_rank && WIFSIGNALED(status)) throw Killed{rank};
    if (WIFSIGNALED(status))
      throw std::runtime_error(who + " was killed by " + strsignal(WTERMSIG(status)));
    if (child.answer.empty())
      throw std::runtime_error(who + " exited with status " + std::to_string(WEXITSTATUS(status)) +
                               " before its work was done");
    child.seen = Record::decode(child.answer);
    take_outcome(child.seen, who);
  }

  ProcessOptions options_;
  Board* boards_;
  std::vector<Child> children_;
  bool killed_ = false;  // kill_rank
};

std::string describe_processes() { return describe(waits_of(watched_boards, watched_world)); }

}  // namespace

void Processes::run(const std::function<void(Member&, Observation&)>& body, Observation& out) {
  auto* memory = static_cast<std::byte*>(shared(options_.bytes));
  auto* boards = static_cast<Board*>(shared(sizeof(Board) * std::size_t(options_.world)));
  for (int r = 0; r < options_.world; ++r) boards[r].sequence = -1;
  watched_boards = boards;
  watched_world = options_.world;
  describe_hangs_with(describe_processes);
  Family family(options_, boards);
  const std::span<std::byte> bytes(memory, options_.bytes);
  family.start(body, [&](int rank) { return Member(rank, options_.world, bytes); });
  family.collect();
  family.merge(out);
}

}  // namespace kit
