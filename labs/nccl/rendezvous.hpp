// How the ranks of a communicator find each other: the unique id is the address of a store and the
// secret that it asks for. Whoever makes the id holds the store, until its process ends.
//
//     ncclGetUniqueId    starts a store (runtime/comm/bootstrap/store)
//                        id = [ "rsnccl01" | port | host | secret ]          128 bytes
//     MPI, a file, ...   carries the id to the other ranks
//     ncclCommInitRank   connects, proves that it knows the secret, and exchanges records there
#pragma once

#include <chrono>
#include <memory>

#include "labs/nccl/nccl.h"
#include "runtime/comm/types/bootstrap.hpp"

namespace ringsmith::nccl {

[[nodiscard]] ncclUniqueId make_id();

// Collective over the ranks. Refusal if the id is none of make_id(), or names a store that has
// gone; as StoreBootstrap else.
[[nodiscard]] std::shared_ptr<comm::Bootstrap> join(const ncclUniqueId& id, int rank, int world,
                                                    std::chrono::milliseconds timeout);

}  // namespace ringsmith::nccl
