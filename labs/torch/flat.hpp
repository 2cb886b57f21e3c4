// A tensor as the runtime needs it: contiguous, aligned, of a type that it knows.
//
//     contiguous, aligned            the tensor's own memory
//     strided, misaligned            a copy replaces it during the call, and is written back
//     int8, int16 (to be reduced)    a copy in int32, whose lowest bits are the result
//     bool (to be reduced)           bytes 0 and 1: sum is max (or), product is min (and)
//     any other type (to be moved)   bytes
#pragma once

#include <ATen/ATen.h>

#include "runtime/comm/types/buffer.hpp"
#include "runtime/comm/types/collective.hpp"

namespace ringsmith::pytorch {

class Flat {
 public:
  enum class For { moving, reducing };
  // Construct a Flat when the call runs, not earlier, because it may copy the tensor's current
  // values. Throws UsageError if the purpose is `reducing` and the type cannot be reduced.
  explicit Flat(const at::Tensor& tensor, For purpose = For::moving);

  [[nodiscard]] comm::Buffer buffer(comm::Site site) const;
  [[nodiscard]] comm::ReduceOp operation(comm::ReduceOp op) const;
  // If a copy replaces the tensor, writes it back.
  void give_back();

 private:
  at::Tensor tensor_, stand_in_;
  DType type_;
  std::size_t count_ = 0;  // elements of type_
};

// Returns a buffer for `parts` tensors like `like`, stored one after the other. For moving only.
[[nodiscard]] comm::Buffer buffer_like(const at::Tensor& like, std::byte* data, std::size_t parts,
                                       comm::Site site);

// Copy between contiguous bytes and a tensor with the same number and type of elements.
void copy_out(const at::Tensor& from, std::byte* to);
void copy_in(const std::byte* from, const at::Tensor& to);

}  // namespace ringsmith::pytorch
