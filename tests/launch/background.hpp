#pragma once

#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <functional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/launch/ringrun.hpp"
#include "tests/support/alive.hpp"

namespace ringsmith::testing {

// Returns true if the condition becomes true within 30 s.
inline bool eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

class Background {
 public:
  explicit Background(const std::vector<std::string>& words) {
    pid_ = fork();
    if (pid_ != 0) return;
    setpgid(0, 0);
    const int file = open((folder_ / "output").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    std::vector<char*> args;
    for (const std::string& word : words) args.push_back(const_cast<char*>(word.c_str()));
    args.push_back(nullptr);
    execv(args[0], args.data());
    _exit(127);
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  ~Background() {
    if (ended_) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }
  // Returns the exit code, 128 + signal, or -1 if the program does not end within 30 s.
  [[nodiscard]] int wait() {
    int status = 0;
    if (!eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  [[nodiscard]] std::string output() const { return read_text(folder_ / "output"); }

 private:
  TemporaryFolder folder_;
  pid_t pid_ = -1;
  bool ended_ = false;
};

}  // namespace ringsmith::testing
