// spawn(): a program makes its own ranks, as torch.multiprocessing.spawn does.
//
//   int main() {
//     return ringsmith::run_main("train", [] {
//       ringsmith::launch::spawn(4, [](std::shared_ptr<comm::ProcessGroup> group) { ... });
//       return 0;
//     });
//   }
//
//     main() --fork--> rank 0: body(group) --.
//        |  --fork--> rank 1: body(group) ---+--> main() goes on when all have returned
//        |  --fork--> ...                    |
//        '--waits----------------------------'    or throws RankFailed, when the others are ended
//
// The ranks are copies of this process: of its memory as it is now, of its open files, of its
// standard streams. A copy has the one thread that called fork(), and none of those that others
// would wait for. So before spawn() there may have been
//   - no thread that still runs: no DataLoader with workers, no kernels::set_threads() above 1 that
//     was put to use, no process group, no MPI_Init. spawn() counts, and says so;
//   - no use of a GPU, nor of an emulated one: a device belongs to the process that opened it.
// Reading a command line, files and datasets is fine, and costs their memory once.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "runtime/base/error.hpp"
#include "runtime/comm/process_group.hpp"

namespace ringsmith::launch {

struct SpawnOptions {
  // Of the group that each rank gets. With a device, the ranks take that one and those after it in
  // turn.
  comm::GroupOptions group;
  // How long the other ranks may take to end after the first rank has ended well;
  // milliseconds::max(): no limit. UsageError unless above 0.
  std::chrono::milliseconds exit_timeout{300'000};
  std::chrono::milliseconds grace{5'000};  // between SIGTERM and SIGKILL
};

// The rank that failed first and how; its exit code: the rank's own, or 128 + signal.
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
// init_process_group() without a launcher's variables makes further groups of the same ranks.
// When a rank throws, exits with another code than 0 or is killed, the others are ended (SIGTERM,
// SIGKILL after the grace), and RankFailed names the one that was first, with its error. Ranks that
// are still there exit_timeout after another has ended well: the same, and TimeoutError. If this
// process dies, so do its ranks. UsageError unless ranks > 0, if threads run here, or if this
// process is a rank already (mpirun, ringrun, srun).
void spawn(int ranks, const std::function<void(std::shared_ptr<comm::ProcessGroup>)>& body,
           const SpawnOptions& options = {});

}  // namespace ringsmith::launch
