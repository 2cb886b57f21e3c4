// saving: how long a training run waits for a checkpoint if it writes the checkpoint itself, and if
// it only copies the data and a thread writes them. The disk is the one with the folder
// `saving-checkpoints`.
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "runtime/autograd/functions.hpp"
#include "runtime/checkpoint/manager.hpp"

using namespace ringsmith;
using Clock = std::chrono::steady_clock;

int main() {
  const std::string folder = "saving-checkpoints";
  const auto ms = [](Clock::duration d) {
    return std::chrono::duration<double, std::milli>(d).count();
  };
  std::printf("%8s %20s %20s %20s\n", "MB", "copied, ms", "on the disk, ms", "read back, ms");
  for (const std::int64_t mb : {4, 16, 64}) {
    std::filesystem::remove_all(folder);
    CheckpointManager checkpoints(folder, 2);
    const Tensor parameters = zeros({mb * 250'000});
    Clock::duration copied{}, kept{};
    for (std::int64_t step = 1; step <= 2; ++step) {  // the second save counts: its pages exist
      const auto begin = Clock::now();
      checkpoints.save({step, {{"model", {{"weight", parameters}}}}, {}});
      copied = Clock::now() - begin;
      checkpoints.wait();
      kept = Clock::now() - begin;
    }
    const auto begin = Clock::now();
    const auto found = checkpoints.load_newest([](const std::string&) {});
    const auto read = Clock::now() - begin;
    std::printf("%8ld %20.1f %20.1f %20.1f\n", static_cast<long>(found ? mb : 0), ms(copied),
                ms(kept), ms(read));
  }
  std::filesystem::remove_all(folder);
}
