// A contiguous tensor as a collective sees it. The one place where runtime/tensor and runtime/comm
// meet in types.
#pragma once

#include "runtime/comm/types/buffer.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

[[nodiscard]] inline std::byte* data_of(const Tensor& tensor) {
  return tensor.storage()->data() +
         static_cast<std::size_t>(tensor.storage_offset()) * size_of(tensor.dtype());
}

[[nodiscard]] inline Bytes size_in_bytes(const Tensor& tensor) {
  return bytes_of(Elements(static_cast<std::size_t>(tensor.numel())), size_of(tensor.dtype()));
}

// The tensor must be contiguous (UsageError) and must outlive the operation.
[[nodiscard]] inline comm::Buffer buffer_of(const Tensor& tensor) {
  require(tensor.is_contiguous(), "a collective needs a contiguous tensor, got strides " +
                                      to_string(tensor.strides()) + " for sizes " +
                                      to_string(tensor.sizes()));
  return {data_of(tensor), Elements(static_cast<std::size_t>(tensor.numel())), tensor.dtype()};
}

}  // namespace ringsmith
