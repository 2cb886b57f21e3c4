// A thread's calls between ncclGroupStart and ncclGroupEnd start at the end of the outermost group.
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

// Runs the operation now, or at the end of the thread's group. Throws its error if it runs now.
void submit(const Operation& operation);
// `making` waits for other ranks, with `device` as the current device.
void submit(Device device, std::function<void()> making);

void group_start();
// Makes the group's communicators and, if no call in the group was refused, runs its operations.
// Tries all of them, then throws the first error.
void group_end();
// Makes group_end() report a call in the group that was refused.
void note_in_group(const Refusal& refusal);

}  // namespace ringsmith::nccl
