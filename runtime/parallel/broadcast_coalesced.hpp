// Many tensors from one rank to all, in few messages.
//
// A model has hundreds of small tensors, and a collective has a latency: so neighbours are packed
// into a staging buffer of communication memory, which is broadcast as bytes, whatever the dtypes.
//
//   w0 b0 w1 b1 ...  --pack-->  |w0|b0|w1|..|  --broadcast-->  |w0|b0|w1|..|  --unpack--> w0 b0 ...
//     on the root                 staging                        staging        on the others
//
// Staging is on the device where group and tensors are on one GPU, else on the host, to and from
// which tensors of a device are copied.
#pragma once

#include <vector>

#include "runtime/comm/process_group.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

constexpr Bytes kBroadcastCap = MiB(250);  // PyTorch's, and the most memory that staging takes

// Collective; of one device. Same tensors (sizes, dtypes, order) on every rank; any strides. A
// tensor above the cap travels in pieces.
void broadcast_coalesced(comm::ProcessGroup& group, const std::vector<Tensor>& tensors, int root,
                         Bytes cap = kBroadcastCap);

}  // namespace ringsmith
