// Broadcasts many tensors from one rank to all ranks in a few messages.
//
// Models have hundreds of small tensors, and each collective has a latency. Consecutive tensors are
// therefore packed into a staging buffer of communication memory and broadcast as bytes.
//
//   w0 b0 w1 b1 ...  --pack-->  |w0|b0|w1|..|  --broadcast-->  |w0|b0|w1|..|  --unpack--> w0 b0 ...
//     on the root                 staging                        staging        on the others
//
#pragma once

#include <vector>

#include "runtime/comm/process_group.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

constexpr Bytes kBroadcastCap = MiB(250);  // the same as PyTorch's; limits the memory for staging

// Collective. Sizes, dtypes and order of the tensors must be the same on every rank; strides may
// differ. A tensor larger than the cap is sent in pieces.
void broadcast_coalesced(comm::ProcessGroup& group, const std::vector<Tensor>& tensors, int root,
                         Bytes cap = kBroadcastCap);

}  // namespace ringsmith
