// Communication memory for PyTorch's tensors: the other ranks of a host reduce from it and write to
// it directly, instead of through slots.
//
// PyTorch's DDP allocates its buckets with at::empty(), which uses the process's CPU allocator.
// This library replaces that allocator: within a shared scope, the group's communication memory
// serves the thread's large allocations. ringsmith_torch.DistributedDataParallel opens a scope
// around the two places where PyTorch creates buckets.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <cstddef>

#include "labs/torch/backend.hpp"

namespace ringsmith::pytorch {

// Smaller tensors do not benefit, because their collectives are a single hand-off, and an arena
// works best with few blocks.
constexpr std::size_t kLeastShared = std::size_t{16} << 10;  // bytes

// Open and close a scope of the calling thread. Scopes nest.
void open_shared_scope(c10::intrusive_ptr<Backend> group);
void close_shared_scope();

[[nodiscard]] at::Tensor shared_zeros(const c10::intrusive_ptr<Backend>& group,
                                      const std::vector<std::int64_t>& sizes, at::ScalarType type);

}  // namespace ringsmith::pytorch
