// send and recv: one rank's buffer to one other's, through a lane of its own.
//
// The first slot of a message carries the fingerprint of the sender's call before the payload; the
// receiver compares it with its own. A send returns when everything is in slots: up to
// kSlots * kSlotBytes it does not wait for the receiver.
#pragma once

#include "runtime/comm/executor/slots.hpp"

namespace ringsmith::comm {

void run_p2p(Peers& peers, Channels& channels, const Transfer& transfer);

// What the first slot of a message holds; on the way to it and from it for every kind of memory.
struct MessageHeader {
  std::uint64_t dtype, count, sequence, on_device, site;
};
void send_header(Peers& peers, Outbox& out, const Transfer& transfer);
// MismatchError if the message is not what this rank's call expects.
void receive_header(Peers& peers, Inbox& in, const Transfer& transfer);

}  // namespace ringsmith::comm
