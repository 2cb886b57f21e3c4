// The runtime's group under a group of PyTorch's, and the two things that PyTorch needs of it
// besides collectives: whether a call that runs on a thread of its own may hold its core, and
// whether a rank is known to be gone.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "labs/torch/bootstrap.hpp"
#include "runtime/comm/cpu_process_group.hpp"

namespace ringsmith::pytorch {

class Group : public comm::CpuProcessGroup {
 public:
  using CpuProcessGroup::CpuProcessGroup;

  // Does somebody wait for the call that runs, or for the next one? Else its thread gives way to
  // the training's. From any thread.
  void hold_core(bool hold) {
    holds_.store(hold, std::memory_order_relaxed);
    peers_.hold_core(hold);
  }
  // May be called while a call runs. "" as long as the rank is there.
  [[nodiscard]] std::string loss_of(int rank) const {
    return peers_.is_gone(rank) ? "rank " + std::to_string(rank) + " is gone: its process has died"
                                : std::string();
  }

 protected:
  void execute(comm::Transfer& transfer) override {
    peers_.hold_core(holds_.load(std::memory_order_relaxed));
    CpuProcessGroup::execute(transfer);
  }

 private:
  std::atomic<bool> holds_{true};
};

}  // namespace ringsmith::pytorch
