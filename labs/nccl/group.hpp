// The calls that a thread makes between ncclGroupStart and ncclGroupEnd start at the end of the
// outermost group.
//
//     making communicators   each in a separate thread, because each waits for the others
//     collectives, messages  communicator by communicator, in the order of their first calls: first
//                            all messages together, then the collectives in the order of the calls
//
// Each thread has its own group, as in NCCL.
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

// Runs the operation now, or at the end of the thread's group. If it runs now, throws its error.
void submit(const Operation& operation);
// The same for the creation of a communicator. `making` runs with `device` as the current device,
// and waits for other ranks.
void submit(Device device, std::function<void()> making);

void group_start();
// Makes the group's communicators and, if no call in the group was rejected, runs its operations.
// If an operation fails, skips the rest of its communicator's operations, but not those of other
// communicators. At the end, throws the first error. Throws Refusal if there was no group_start().
void group_end();
// Ends the group like group_end(), but drops its operations and communicators.
void group_drop();
// Makes group_end() report a call in the group that was rejected.
void note_in_group(const Refusal& refusal);

}  // namespace ringsmith::nccl
