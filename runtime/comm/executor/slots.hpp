// Runs a plan on any memory: messages travel through the slots of the channels.
//
// Chunks are cut into slices that fit into a slot, and the whole plan is run for slice 0 of all
// chunks, then for slice 1, and so on: what was just received is still in the cache when it is sent
// on. Two slices are in flight, each on a lane of its own, so that one moves while the other waits.
//
//     lane 0   [slice 0: send . . . reduce+send . . copy][slice 2: send . . . reduce+send ...
//     lane 1      [slice 1: send . . . reduce+send . . copy][slice 3: ...
#pragma once

#include "runtime/comm/executor/plan.hpp"
#include "runtime/comm/transport/channel.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

void run_in_slots(Peers& peers, Channels& channels, const Schedule& schedule, const Plan& plan,
                  const Transfer& transfer);

}  // namespace ringsmith::comm
