#include "tests/fault/forked_ranks.hpp"

#include <atomic>
#include <csignal>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "runtime/base/error.hpp"

namespace ringsmith::test {

namespace {
constexpr int kMaxWorld = 16;
constexpr auto kPoll = std::chrono::milliseconds(1);
constexpr std::chrono::seconds kMeeting{30};
}  // namespace

struct ForkedRanks::Shared {
  std::atomic<std::uint64_t> progress[kMaxWorld];
};

std::string contents(int file) {
  std::string text;
  char block[4096];
  lseek(file, 0, SEEK_SET);
  for (ssize_t n = 0; (n = read(file, block, sizeof block)) > 0;)
    text.append(block, static_cast<std::size_t>(n));
  return text;
}

ForkedRanks::ForkedRanks(int world, const Body& body)
    : shared_(static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0))),
      meeting_(world) {
  require(shared_ != MAP_FAILED && world <= kMaxWorld, "ForkedRanks: no shared mapping");
  for (int r = 0; r < world; ++r) {
    error_files_.push_back(memfd_create("stderr", 0));
    const pid_t pid = fork();
    require(pid >= 0, "ForkedRanks: fork failed");
    if (pid == 0) {
      dup2(error_files_.back(), STDERR_FILENO);
      const int code = run_main("rank", [&] {
        body(meeting_.join(r, kMeeting), *this);
        return 0;
      });
      _exit(code);
    }
    pids_.push_back(pid);
  }
}

ForkedRanks::~ForkedRanks() {
  for (const pid_t pid : pids_)
    if (pid > 0) {
      ::kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  for (const int file : error_files_) close(file);
  munmap(shared_, sizeof(Shared));
}

void ForkedRanks::made_progress(int rank) { ++shared_->progress[rank]; }

bool ForkedRanks::wait_for_progress(std::uint64_t n, std::chrono::seconds deadline) const {
  const auto end = std::chrono::steady_clock::now() + deadline;
  for (std::size_t r = 0; r < pids_.size(); ++r)
    while (shared_->progress[r].load() < n) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(kPoll);
    }
  return true;
}

void ForkedRanks::kill(int rank, int signal) {
  ::kill(pids_[static_cast<std::size_t>(rank)], signal);
  killed_ = std::chrono::steady_clock::now();
}

std::vector<Ending> ForkedRanks::wait_for_all(std::chrono::seconds deadline) {
  std::vector<Ending> endings(pids_.size());
  const auto end = std::chrono::steady_clock::now() + deadline;
  for (bool running = true; running;) {
    running = false;
    for (std::size_t r = 0; r < pids_.size(); ++r) {
      if (pids_[r] <= 0) continue;
      int status = 0;
      if (waitpid(pids_[r], &status, WNOHANG) == 0) {
        running = true;
        continue;
      }
      const std::chrono::duration<double> since = std::chrono::steady_clock::now() - killed_;
      endings[r] = {WIFEXITED(status), WIFEXITED(status) ? WEXITSTATUS(status) : -1, since.count(),
                    contents(error_files_[r]), pids_[r]};
      pids_[r] = 0;
    }
    if (std::chrono::steady_clock::now() > end) break;
    std::this_thread::sleep_for(kPoll);
  }
  for (std::size_t r = 0; r < pids_.size(); ++r)
    if (pids_[r] > 0) endings[r].errors = contents(error_files_[r]) + "(still running)";
  return endings;
}

}  // namespace ringsmith::test
