// Rows of a table by number, and the way back: the gradient of a row is the sum over its uses.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/on_device.hpp"

namespace ringsmith::kernels {

// Throws UsageError naming the position and value of the first index outside [0, rows). On a device
// it throws later, when the host next looks (runtime/device/findings.hpp).
using CheckIndicesFn = void(const char* op, std::span<const std::int64_t> index, std::int64_t rows);
namespace cpu {
CheckIndicesFn check_indices;
}
namespace cuda {
CheckIndicesFn check_indices;
}
RINGSMITH_ON_DEVICE(check_indices)

// out[i] = weight[index[i]], rows of `dim` elements. On a device a row outside of the table is NaN.
template <class T>
using EmbeddingFn = void(std::span<const T> weight, std::int64_t dim,
                         std::span<const std::int64_t> index, std::span<T> out);
RINGSMITH_KERNEL(embedding, EmbeddingFn)

// dweight[index[i]] += dy[i], in the order of i; on a device, beyond 64 indices, in another order
// that is fixed too (kernels/cuda/embedding.cu). Adds to what dweight holds.
template <class T>
using EmbeddingBackwardFn = void(std::span<const T> dy, std::int64_t dim,
                                 std::span<const std::int64_t> index, std::span<T> dweight);
RINGSMITH_KERNEL(embedding_backward, EmbeddingBackwardFn)

}  // namespace ringsmith::kernels
