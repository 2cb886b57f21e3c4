// Gathers rows of a table by index. Backward: the gradient of a row is the sum over its uses.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/on_device.hpp"

namespace ringsmith::kernels {

// Throws a UsageError that names the position and value of the first index outside [0, rows). On a
// device the error is thrown later, at the host's next check (runtime/device/findings.hpp).
using CheckIndicesFn = void(const char* op, std::span<const std::int64_t> index, std::int64_t rows);
namespace cpu {
CheckIndicesFn check_indices;
}
namespace cuda {
CheckIndicesFn check_indices;
}
RINGSMITH_ON_DEVICE(check_indices)

// out[i] = weight[index[i]], in rows of `dim` elements. On a device, an index outside the table
// yields a row of NaN.
template <class T>
using EmbeddingFn = void(std::span<const T> weight, std::int64_t dim,
                         std::span<const std::int64_t> index, std::span<T> out);
RINGSMITH_KERNEL(embedding, EmbeddingFn)

// dweight[index[i]] += dy[i], in the order of i. On a device, more than 64 indices are added in
// another fixed order (kernels/cuda/embedding.cu).
template <class T>
using EmbeddingBackwardFn = void(std::span<const T> dy, std::int64_t dim,
                                 std::span<const std::int64_t> index, std::span<T> dweight);
RINGSMITH_KERNEL(embedding_backward, EmbeddingBackwardFn)

}  // namespace ringsmith::kernels
