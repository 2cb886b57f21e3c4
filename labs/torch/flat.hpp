// A tensor as the runtime takes it: one run of elements, aligned, of a type that it knows.
//
//     contiguous, aligned            the tensor's own memory
//     strided, misaligned            a copy stands for it during the call, and is written back
//     int8, int16 (to be reduced)    a copy in int32, whose lowest bits are theirs
//     bool (to be reduced)           bytes 0 and 1: sum is max (or), product is min (and)
//     any other type (to be moved)   bytes
#pragma once

#include <ATen/ATen.h>

#include "runtime/comm/types/buffer.hpp"
#include "runtime/comm/types/collective.hpp"

namespace ringsmith::pytorch {

// UsageError naming the call and the reason if the tensor cannot be used in it: on another device,
// sparse, undefined; or written where it has several elements in one place.
void check_tensor(const char* call, const at::Tensor& tensor, bool written);
void check_same_type(const char* call, const at::Tensor& one, const at::Tensor& other);
void check_same_size(const char* call, const at::Tensor& one, const at::Tensor& other);

class Flat {
 public:
  enum class For { moving, reducing };
  // To be made where the call runs: a copy is of that moment. UsageError: `reducing` a type that
  // has no sums here.
  explicit Flat(const at::Tensor& tensor, For purpose = For::moving);

  [[nodiscard]] comm::Buffer buffer(comm::Site site) const;
  // Of elements of this type.
  [[nodiscard]] comm::ReduceOp operation(comm::ReduceOp op) const;
  // Where a copy stands for the tensor, writes it back.
  void give_back();

 private:
  at::Tensor tensor_, stand_in_;
  DType type_;
  std::size_t count_ = 0;  // elements of type_
};

// Memory that holds `parts` tensors like this one, side by side, to be moved.
[[nodiscard]] comm::Buffer buffer_like(const at::Tensor& like, std::byte* data, std::size_t parts,
                                       comm::Site site);

// Bytes of a contiguous tensor from or to any tensor of as many elements and the same type.
void copy_out(const at::Tensor& from, std::byte* to);
void copy_in(const std::byte* from, const at::Tensor& to);

}  // namespace ringsmith::pytorch
