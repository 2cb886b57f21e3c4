// Sends the state of a training run to a rank that joins, while both ranks run the step.
//
//   sender    copy |forward, backward ........| vote
//                  '--thread--> bytes -------.
//   receiver        thread receives them ----'-| vote
//
// Each pair of sender and receiver has its own group, so that the step's collectives never wait for
// these bytes.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/checkpoint/snapshot.hpp"
#include "runtime/comm/process_group.hpp"

namespace ringsmith {

// Convert a snapshot to bytes and back. The bytes are the length of a JSON text, the text (step,
// values, names, dtypes, sizes), and the tensors. unpack() returns tensors on the CPU and throws
// CommError if the bytes are malformed.
[[nodiscard]] std::vector<std::byte> pack(const Snapshot& snapshot);
[[nodiscard]] Snapshot unpack(std::span<const std::byte> bytes);

class StateTransfers {
 public:
  StateTransfers() = default;
  ~StateTransfers() { abort(); }
  StateTransfers(const StateTransfers&) = delete;
  StateTransfers& operator=(const StateTransfers&) = delete;

  // pair: a group of two ranks; rank 0 sends to rank 1. send() and receive() return immediately.
  void send(std::shared_ptr<comm::ProcessGroup> pair,
            std::shared_ptr<const std::vector<std::byte>> bytes);
  void receive(std::shared_ptr<comm::ProcessGroup> pair);

  // Blocks until the state has been received and returns it, or throws the transfer's error.
  [[nodiscard]] Snapshot take();
  void abort();     // aborts running transfers and joins the threads
  void wait_all();  // blocks until all transfers have completed or failed

 private:
  struct RunningTransfer {
    std::shared_ptr<comm::ProcessGroup> pair;
    std::thread thread;
  };
  std::vector<RunningTransfer> transfers_;
  std::vector<std::byte> received_;
  std::exception_ptr error_;  // of the receiver
};

}  // namespace ringsmith
