#include "labs/torch/checks.hpp"

#include <ATen/MemoryOverlap.h>
#include <string>

#include "runtime/base/error.hpp"

namespace ringsmith::pytorch {

void check_tensor(const char* call, const at::Tensor& tensor, bool written) {
  const auto refuse = [&](const std::string& why) {
    throw UsageError(std::string(call) + ": " + why);
  };
  if (!tensor.defined()) refuse("a tensor is undefined");
  if (!tensor.device().is_cpu())
    refuse("tensors must be on the CPU, got one on " + tensor.device().str() +
           ": this backend moves host memory; call tensor.cpu() first");
  if (tensor.layout() != at::kStrided)
    refuse("a sparse tensor is not supported; call tensor.to_dense() first");
  if (written && at::has_internal_overlap(tensor) == at::MemOverlap::Yes)
    refuse("several elements of the result share memory (expanded?); call tensor.clone()");
}

void check_same_type(const char* call, const at::Tensor& one, const at::Tensor& other) {
  if (one.scalar_type() != other.scalar_type())
    throw UsageError(std::string(call) + ": tensors of the same type are needed, got " +
                     at::toString(one.scalar_type()) + " and " + at::toString(other.scalar_type()));
}

void check_same_size(const char* call, const at::Tensor& one, const at::Tensor& other) {
  if (one.numel() != other.numel())
    throw UsageError(std::string(call) + ": tensors of the same size are needed, got " +
                     std::to_string(one.numel()) + " and " + std::to_string(other.numel()) +
                     " elements");
}

const at::Tensor& only_one(const char* call, const std::vector<at::Tensor>& tensors) {
  if (tensors.size() != 1)
    throw UsageError(std::string(call) + ": one tensor for each process is needed, got " +
                     std::to_string(tensors.size()));
  return tensors[0];
}

const std::vector<at::Tensor>& only_list(const char* call,
                                         const std::vector<std::vector<at::Tensor>>& lists,
                                         int size) {
  if (lists.size() != 1 || lists[0].size() != static_cast<std::size_t>(size))
    throw UsageError(std::string(call) + ": a list of " + std::to_string(size) +
                     " tensors is needed, one for each rank, got " +
                     (lists.size() == 1 ? std::to_string(lists[0].size()) + " tensors"
                                        : std::to_string(lists.size()) + " lists"));
  return lists[0];
}

void check_root(const char* call, std::int64_t root, int size) {
  if (root < 0 || root >= size)
    throw UsageError(std::string(call) + ": root " + std::to_string(root) +
                     " is not a rank of this group of " + std::to_string(size));
}

void check_parts(const char* call, const std::vector<at::Tensor>& parts, const at::Tensor& like,
                 bool written) {
  for (const at::Tensor& part : parts) {
    check_tensor(call, part, written);
    check_same_type(call, part, like);
    check_same_size(call, part, like);
  }
}

void check_world_times(const char* call, const at::Tensor& large, const at::Tensor& small,
                       int world) {
  if (large.numel() != small.numel() * world)
    throw UsageError(std::string(call) + ": the larger tensor needs " +
                     std::to_string(small.numel() * world) + " elements, the smaller one's " +
                     std::to_string(small.numel()) + " for each of " + std::to_string(world) +
                     " ranks, got " + std::to_string(large.numel()));
}

void check_equal_lengths(const char* call, const std::vector<at::Tensor>& outputs,
                         const std::vector<at::Tensor>& inputs) {
  if (outputs.size() != inputs.size())
    throw UsageError(std::string(call) + ": as many outputs as inputs are needed, got " +
                     std::to_string(outputs.size()) + " and " + std::to_string(inputs.size()));
}

}  // namespace ringsmith::pytorch
