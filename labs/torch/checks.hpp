// Checks of a call's tensors on the rank that made the call, before it takes part. Every function
// throws UsageError, naming the call and the remedy.
#pragma once

#include <ATen/ATen.h>
#include <cstdint>
#include <vector>

namespace ringsmith::pytorch {

// The tensor must be defined, dense and on the CPU. If it is written, its elements must not share
// memory.
void check_tensor(const char* call, const at::Tensor& tensor, bool written);
void check_same_type(const char* call, const at::Tensor& one, const at::Tensor& other);
void check_same_size(const char* call, const at::Tensor& one, const at::Tensor& other);

// Returns the tensor of a call that takes one for each process.
const at::Tensor& only_one(const char* call, const std::vector<at::Tensor>& tensors);
// Returns the list of a call that takes one tensor for each of `size` ranks.
const std::vector<at::Tensor>& only_list(const char* call,
                                         const std::vector<std::vector<at::Tensor>>& lists,
                                         int size);
void check_root(const char* call, std::int64_t root, int size);
// The parts must have the type and size of `like`.
void check_parts(const char* call, const std::vector<at::Tensor>& parts, const at::Tensor& like,
                 bool written);
// `large` must have the elements of `small` from each rank.
void check_world_times(const char* call, const at::Tensor& large, const at::Tensor& small,
                       int world);
void check_equal_lengths(const char* call, const std::vector<at::Tensor>& outputs,
                         const std::vector<at::Tensor>& inputs);

}  // namespace ringsmith::pytorch
