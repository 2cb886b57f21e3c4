// The ranks of a communicator find each other through a store. The unique id contains the store's
// address and secret. The process that creates the id runs the store until the process ends.
//
//     ncclGetUniqueId    starts a store (runtime/job/store)
//                        id = [ "rsnccl01" | port | host | secret ]          128 bytes
//     MPI, a file, ...   carry the id to the other ranks
//     ncclCommInitRank   connects, proves that it knows the secret, and exchanges records there
#pragma once

#include <chrono>
#include <memory>

#include "labs/nccl/nccl.h"
#include "runtime/comm/types/bootstrap.hpp"

namespace ringsmith::nccl {

[[nodiscard]] ncclUniqueId make_id();

// Collective over the ranks. Throws Refusal if the id was not made by make_id(), and the errors of
// StoreClient and Exchange, for example if the store is gone.
[[nodiscard]] std::shared_ptr<comm::Bootstrap> join(const ncclUniqueId& id, int rank, int world,
                                                    std::chrono::milliseconds timeout);

// Collective over some ranks of `parent`, which join() returned: a bootstrap over the same store.
// The others need not be alive. `rank` and `world` are those of the part.
[[nodiscard]] std::shared_ptr<comm::Bootstrap> join_part(comm::Bootstrap& parent, int rank,
                                                         int world,
                                                         std::chrono::milliseconds timeout);

}  // namespace ringsmith::nccl
