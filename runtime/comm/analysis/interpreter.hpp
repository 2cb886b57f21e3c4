// Runs a schedule without data: who posts, who receives, who waits for whom.
//
// One run is enough. A rank's steps are fixed beforehand, a receive names its peer, and a message
// never makes an earlier possible step impossible: executions are monotone, so whatever order the
// ranks are served in, all maximal executions do the same steps and stop at the same place (Kahn's
// networks, with bounded queues). Hence "this run finished" means "every run finishes".
//
//     rank 0   post ---message---> receive   rank 1        a connection holds at most k messages
//              step 4              step 4                  that were posted and not yet received
#pragma once

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

// How much a connection holds.
struct Wires {
  static constexpr int kUnlimited = -1;
  // Messages between one sender and one receiver. 0 is rendezvous: a send ends when its receiver is
  // at the matching receive.
  int slots = kUnlimited;
  // With 0 slots: the send and the receive of a step go on side by side, as they do when a message
  // is larger than all slots together and moves in slices. The step ends when both have.
  bool streamed = false;
};

// Where a rank stands when nobody can go on.
struct Blocked {
  int rank = 0;
  int step = 0;
  bool sending = false;  // waits for a free slot (else: for a message)
  int peer = 0;          // of whom
};

// Told about everything that happens, in an order that could happen.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void posted(int /*rank*/, int /*step*/) {}
  // The message that sender posted at sender_step arrives. For a local step sender == rank.
  virtual void received(int /*rank*/, int /*step*/, int /*sender*/, int /*sender_step*/) {}
};

// Runs until nobody can go on; the result is empty when all ranks have finished. Peers must be
// ranks of the world (the checker looks first).
[[nodiscard]] std::vector<Blocked> interpret(const Schedule& schedule, Wires wires,
                                             Observer& observer);
[[nodiscard]] std::vector<Blocked> interpret(const Schedule& schedule, Wires wires);

}  // namespace ringsmith::comm
