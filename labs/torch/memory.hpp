// Communication memory for PyTorch's tensors: what the other ranks of a host reduce from and write
// to where it lies, instead of through slots.
//
// PyTorch's DDP allocates its buckets itself, by at::empty(), and offers no hook for it. But
// at::empty() asks the process's CPU allocator, which may be replaced. Within a SharedScope, the
// allocations of its thread that are large enough come from the group's communication memory; all
// others are as before. ringsmith_torch.DistributedDataParallel opens one around the two places
// where buckets are made.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <cstddef>

#include "labs/torch/backend.hpp"

namespace ringsmith::pytorch {

// Smaller tensors are not worth it: their collectives are one hand-off, and arenas like few blocks.
constexpr std::size_t kLeastShared = std::size_t{16} << 10;  // bytes

// Of the thread that opens it. Scopes nest.
void open_shared_scope(c10::intrusive_ptr<Backend> group);
void close_shared_scope();

// A tensor in the group's communication memory; contiguous, zeros.
[[nodiscard]] at::Tensor shared_zeros(const c10::intrusive_ptr<Backend>& group,
                                      const std::vector<std::int64_t>& sizes, at::ScalarType type);

}  // namespace ringsmith::pytorch
