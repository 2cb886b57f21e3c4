// The state of a training on its way from a rank that has it to one that joins, beside the step
// that both are in.
//
//   sender    copy |forward, backward ........| vote
//                  '--thread--> bytes -------.
//   receiver        thread waits, takes them -'-| vote
//
// Each pair has a group of its own, so that nothing of the step's collectives waits for the bytes,
// and the bytes travel as those do: through shared memory within a host, over TCP between hosts.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/checkpoint/snapshot.hpp"
#include "runtime/comm/process_group.hpp"

namespace ringsmith {

// One snapshot in bytes: the length of a JSON text, the text (step, values, form of the tensors),
// the tensors. unpack() gives tensors on the CPU; CommError if the bytes are not what pack() wrote.
[[nodiscard]] std::vector<std::byte> pack(const Snapshot& snapshot);
[[nodiscard]] Snapshot unpack(std::span<const std::byte> bytes);

class StateTransfers {
 public:
  StateTransfers() = default;
  ~StateTransfers() { abort(); }
  StateTransfers(const StateTransfers&) = delete;
  StateTransfers& operator=(const StateTransfers&) = delete;

  // pair: a group of two ranks, 0 sends to 1. Both return at once.
  void send(std::shared_ptr<comm::ProcessGroup> pair,
            std::shared_ptr<const std::vector<std::byte>> bytes);
  void receive(std::shared_ptr<comm::ProcessGroup> pair);

  [[nodiscard]] bool receives() const { return receives_; }
  // Waits for the bytes that are to come; throws why they do not.
  [[nodiscard]] Snapshot take();
  void abort();      // what still travels; then waits for the threads
  void wait_sent();  // the receivers have all of it, or are gone

 private:
  struct Transfer {
    std::shared_ptr<comm::ProcessGroup> pair;
    std::thread thread;
  };
  std::vector<Transfer> transfers_;
  bool receives_ = false;
  std::vector<std::byte> received_;
  std::exception_ptr error_;  // of the receiver
};

}  // namespace ringsmith
