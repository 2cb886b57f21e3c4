// The runtime's group under a PyTorch group. It lets a call on a separate thread keep its core, and
// reports whether a rank is known to be gone or has sent a message.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "labs/torch/bootstrap.hpp"
#include "runtime/comm/cpu_process_group.hpp"

namespace ringsmith::pytorch {

class Group : public comm::CpuProcessGroup {
 public:
  using CpuProcessGroup::CpuProcessGroup;

  // hold: true if a caller waits for the current call or the next one. Otherwise the call's thread
  // yields its core to the training. Thread-safe.
  void hold_core(bool hold) {
    holds_.store(hold, std::memory_order_relaxed);
    peers_.waiter().hold_core(hold);
  }
  // Also applies to a call in progress. Thread-safe.
  void set_timeout(std::chrono::milliseconds timeout) { peers_.health().set_timeout(timeout); }
  // True if a message of the peer waits for a recv(). Call it on the thread that calls recv().
  [[nodiscard]] bool has_message(int peer) {
    peers_.segments().look();
    return dispatcher_.channels().in(peer, comm::kSendLane).has_message();
  }
  // Returns the reason why the rank is lost, or "" while it is alive. May be called while a call
  // runs.
  [[nodiscard]] std::string loss_of(int rank) const {
    return peers_.segments().is_gone(rank)
               ? "rank " + std::to_string(rank) + " is gone: its process has died"
               : std::string();
  }

 protected:
  void execute(comm::Transfer& transfer) override {
    peers_.waiter().hold_core(holds_.load(std::memory_order_relaxed));
    CpuProcessGroup::execute(transfer);
  }

 private:
  std::atomic<bool> holds_{true};
};

}  // namespace ringsmith::pytorch
