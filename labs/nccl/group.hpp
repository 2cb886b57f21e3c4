// Groups: what a thread calls between ncclGroupStart and ncclGroupEnd begins at the end of the
// outermost group, all of it together.
//
//     making communicators   each in a thread of its own, because each waits for the others
//     collectives, messages  communicator by communicator, in the order of the first calls: first
//                            all messages at once, then the collectives as they were called
//
// A group is its thread's own, as in the interface.
#pragma once

#include <functional>
#include <variant>
#include <vector>

#include "labs/nccl/communicator.hpp"

namespace ringsmith::nccl {

struct Operation {
  Communicator* communicator;
  std::variant<CollectiveCall, MessageCall> call;
  cudaStream_t stream;
};

// Now, or at the end of the thread's group. Throws what went wrong, if it is now.
void submit(const Operation& operation);
// Makes something that waits for other ranks. `device` is the current one while it runs.
void submit(Device device, std::function<void()> making);

void group_start();
// Throws the first that went wrong in the group; all of it was tried.
void group_end();
// A call in the group was refused: its end says so too.
void note_in_group(const Refusal& refusal);

}  // namespace ringsmith::nccl
