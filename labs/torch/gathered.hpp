// Reductions that the runtime does not have: bit operations, and sums of sparse tensors.
//
// Every rank gathers all inputs and folds them itself, in the order of the ranks. So all ranks get
// the same bits, as with gloo. The ranks move `world` times the bytes of their inputs, where an
// all_reduce moves each byte twice at most.
#pragma once

#include <ATen/ATen.h>
#include <functional>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "runtime/comm/process_group.hpp"

namespace ringsmith::pytorch {

// Returns communication memory of at least this many bytes, valid until the next call.
using Scratch = std::function<std::byte*(std::size_t)>;

enum class BitOp { band, bor, bxor };

// The bit operation that the reduction is, if it is one.
[[nodiscard]] std::optional<BitOp> bit_op_of(const c10d::ReduceOp& op);
// Throws UsageError unless the tensor is of an integral type or bool.
void check_bits(const char* call, const at::Tensor& tensor);

// Collective. Replaces the data by the fold of all ranks' data, or leaves it unchanged if the rank
// does not keep the result.
void all_reduce_bits(comm::ProcessGroup& group, const Scratch& scratch, const at::Tensor& data,
                     BitOp op, bool keeps, comm::Site site);
// Collective. output: the fold of all ranks' parts for this rank; parts: one for each rank, of the
// output's size and type.
void reduce_scatter_bits(comm::ProcessGroup& group, const Scratch& scratch,
                         const std::vector<at::Tensor>& parts, const at::Tensor& output, BitOp op,
                         comm::Site site);

// Collective. Returns the sum of all ranks' sparse tensors (COO layout), coalesced. Throws
// MismatchError on all ranks if their types, shapes or numbers of sparse dimensions differ.
[[nodiscard]] at::Tensor sum_of_sparse(comm::ProcessGroup& group, const Scratch& scratch,
                                       const at::Tensor& mine, comm::Site site);

}  // namespace ringsmith::pytorch
