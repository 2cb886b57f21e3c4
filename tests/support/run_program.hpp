#pragma once

#include <array>
#include <chrono>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace ringsmith::testing {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal if a signal ended it
  bool timed_out = false;
  std::string out;
  std::string err;
};

// Runs a program, looking argv[0] up in PATH. Kills its process group at the deadline.
inline ProgramResult run_program(const std::vector<std::string>& argv, double seconds = 60,
                                 const std::string& working_dir = "") {
  std::array<std::array<int, 2>, 2> pipes{};
  for (auto& p : pipes)
    if (pipe2(p.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    setpgid(0, 0);
    const int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(pipes[0][1], STDOUT_FILENO);
    dup2(pipes[1][1], STDERR_FILENO);
    if (!working_dir.empty() && chdir(working_dir.c_str()) != 0) _exit(126);
    std::vector<char*> args;
    for (const std::string& a : argv) args.push_back(const_cast<char*>(a.c_str()));
    args.push_back(nullptr);
    execvp(args[0], args.data());
    _exit(127);
  }
  close(pipes[0][1]);
  close(pipes[1][1]);

  ProgramResult result;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::array<pollfd, 2> fds{pollfd{pipes[0][0], POLLIN, 0}, pollfd{pipes[1][0], POLLIN, 0}};
  const std::array<std::string*, 2> sinks{&result.out, &result.err};
  for (int open_streams = 2; open_streams > 0;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0 && !result.timed_out) {
      result.timed_out = true;
      kill(-child, SIGKILL);
    }
    // A grandchild that has left the group may hold the pipe open.
    if (poll(fds.data(), 2, result.timed_out ? 1000 : static_cast<int>(left.count()) + 1) == 0 &&
        result.timed_out)
      break;
    for (std::size_t i = 0; i < 2; ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      std::array<char, 4096> block{};
      const ssize_t n = read(fds[i].fd, block.data(), block.size());
      if (n > 0) {
        sinks[i]->append(block.data(), static_cast<std::size_t>(n));
      } else {
        fds[i].fd = -1;
        --open_streams;
      }
    }
  }
  close(pipes[0][0]);
  close(pipes[1][0]);
  int status = 0;
  waitpid(child, &status, 0);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace ringsmith::testing
