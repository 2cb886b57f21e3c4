// Engine A's hand-off: a stream of one rank goes on after a point in the stream of another one.
//
//     rank 0   host:   enqueue move, record event 5, progress = 5
//              stream: ...[move 5] event 5 ........
//     rank 1   host:       wait until progress >= 5, enqueue wait(event 5), move, ...
//              stream:                          ........ wait [move that needs it]
//
// The hosts hand on that the event has been recorded (a counter in shared host memory, with all the
// waiting and all the deadlines of transport/host.hpp); the streams hand on that it has happened.
// So hosts run ahead, and no host waits for a device.
//
// An event is used again and again. Who waits for it waits for its latest record, which may be
// later than the one that was meant; that is safe, and never a deadlock: a wait is always enqueued
// after the record that it refers to, so that no circle of waits can close.
#pragma once

#include "runtime/comm/device/peers.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith::comm::cuda_ipc {

class HandOff {
 public:
  HandOff(Host& host, Peers& peers, Stream stream)
      : host_(host), peers_(peers), stream_(std::move(stream)) {}

  // Points named by progress counters: (round of the roll call, moves so far).
  static constexpr std::uint64_t stamp(std::uint64_t round, std::uint64_t moves) {
    return round << 24 | moves;
  }
  void reach(std::uint64_t stamp);
  void wait_for(int rank, std::uint64_t stamp);

  // Points that the ranks' hosts hand on by other means (a roll call, a message).
  void record(std::uint32_t event);
  void wait_for_event(int rank, std::uint32_t event);

 private:
  Host& host_;
  Peers& peers_;
  Stream stream_;
};

}  // namespace ringsmith::comm::cuda_ipc
