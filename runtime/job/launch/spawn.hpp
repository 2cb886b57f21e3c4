// spawn(): a program creates its own ranks, as torch.multiprocessing.spawn does.
//
//   int main() {
//     return ringsmith::run_main("train", [] {
//       ringsmith::launch::spawn(4, [](std::shared_ptr<comm::ProcessGroup> group) { ... });
//       return 0;
//     });
//   }
//
//     main() --fork--> rank 0: body(group) --.
//        |  --fork--> rank 1: body(group) ---+--> main() continues when all have returned
//        |  --fork--> ...                    |
//        '--waits----------------------------'    or throws RankFailed after ending the others
//
// The ranks are copies of this process, with its memory, open files and standard streams, but only
// the thread that called fork(): locks that other threads held are never released. Therefore,
// before spawn() there must have been
//   - no thread that still runs: no DataLoader with workers, no computation with set_threads() > 1,
//     no process group, no MPI_Init. spawn() counts the threads and throws UsageError;
//   - no use of a GPU, nor of an emulated one: a device belongs to the process that opened it.
// Reading a command line, files and datasets is fine.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "runtime/base/error.hpp"
#include "runtime/comm/process_group.hpp"

namespace ringsmith::launch {

struct SpawnOptions {
  // With a CUDA device, consecutive ranks take consecutive devices from this one on.
  comm::GroupOptions group;
  // How long the other ranks may take to finish after the first rank has succeeded. Must be above
  // 0; milliseconds::max() means no limit.
  std::chrono::milliseconds exit_timeout{300'000};
  std::chrono::milliseconds grace{5'000};  // between SIGTERM and SIGKILL
};

// exit_code(): the code of the rank that failed first, or 128 + signal.
class RankFailed : public Error {
 public:
  RankFailed(const std::string& message, int rank, int code)
      : Error(message), rank_(rank), code_(code) {}
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] ExitCode exit_code() const noexcept override {
    return static_cast<ExitCode>(code_);
  }

 private:
  int rank_, code_;
};

// Runs body(group) in `ranks` new processes, and returns when all have returned. In body,
// init_process_group() with the default bootstrap creates further groups of the same ranks.
// When a rank throws, exits with a code other than 0 or is killed, the others are terminated, and
// RankFailed names the rank that failed first, with its error. Ranks that still run `exit_timeout`
// after the first success are terminated, too, and TimeoutError is thrown. If this process dies, so
// do its ranks. Throws UsageError if ranks <= 0, a timeout is not above 0, this process has other
// threads or ignores SIGCHLD, or it is itself a rank (mpirun, ringrun, srun), and ResourceError if
// fork fails.
void spawn(int ranks, const std::function<void(std::shared_ptr<comm::ProcessGroup>)>& body,
           const SpawnOptions& options = {});

}  // namespace ringsmith::launch
