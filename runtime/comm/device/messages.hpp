// send and recv of device memory: the FIFO of executor/p2p.hpp, with its slots on the sender's
// device. The hosts' slots carry where the data is instead of the data itself.
//
//     sender's stream     wait(credit) [copy into slot] event ...
//     receiver's stream        wait(event) [copy out of slot] credit ...
#pragma once

#include "runtime/comm/device/device_arena.hpp"
#include "runtime/comm/device/hand_off.hpp"
#include "runtime/comm/executor/p2p.hpp"

namespace ringsmith::comm::cuda_ipc {

class Messages {
 public:
  Messages(Host& host, Channels& channels, Peers& peers, DeviceArena& arena, HandOff& hand_off);
  // Enqueues on the calling thread's current stream.
  void run(const Transfer& transfer);

 private:
  void send(const Transfer& transfer);
  void receive(const Transfer& transfer);

  // The slots towards one peer.
  struct Slots {
    std::shared_ptr<CommMemory> memory;
    std::uint64_t sent = 0;  // pieces
  };
  Host& host_;
  Channels& channels_;
  Peers& peers_;
  DeviceArena& arena_;
  HandOff& hand_off_;
  std::vector<Slots> slots_;  // by peer
};

}  // namespace ringsmith::comm::cuda_ipc
