// Ranks as child processes without a launcher. mpirun would kill all ranks when a test kills one of
// them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "runtime/comm/process_group.hpp"
#include "runtime/job/forked.hpp"

namespace ringsmith::test {

struct Ending {
  bool exited = false;  // false if a signal killed it or it was still running
  int code = -1;
  double seconds = 0;  // since the last kill(), or since the start
  std::string errors;  // its standard error
  pid_t pid = 0;
};

[[nodiscard]] std::string contents(int file);

class ForkedRanks {
 public:
  // Runs body on every rank. An exception ends the rank as in run_main(). The body may call
  // made_progress().
  using Body = std::function<void(std::shared_ptr<comm::Bootstrap>, ForkedRanks&)>;
  ForkedRanks(int world, const Body& body);
  ForkedRanks(const ForkedRanks&) = delete;
  ForkedRanks& operator=(const ForkedRanks&) = delete;
  ~ForkedRanks();

  void made_progress(int rank);  // called by a rank
  // Waits until every rank has made progress n times. Returns false at the deadline.
  [[nodiscard]] bool wait_for_progress(std::uint64_t n, std::chrono::seconds deadline) const;
  void kill(int rank, int signal);
  [[nodiscard]] std::vector<Ending> wait_for_all(std::chrono::seconds deadline);

 private:
  struct Shared;
  Shared* shared_;
  comm::ForkedMeeting meeting_;
  std::vector<pid_t> pids_;
  std::vector<int> error_files_;
  std::chrono::steady_clock::time_point killed_ = std::chrono::steady_clock::now();
};

}  // namespace ringsmith::test
