// Rows of a table by number, and the way back: the gradient of a row is the sum over its uses.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/on_device.hpp"

namespace ringsmith::kernels {
namespace cpu {

// Throws UsageError naming the position and value of the first index outside [0, rows).
void check_indices(const char* op, std::span<const std::int64_t> index, std::int64_t rows);

// out[i] = weight[index[i]], rows of `dim` elements.
void embedding(std::span<const float> weight, std::int64_t dim, std::span<const std::int64_t> index,
               std::span<float> out);
void embedding(std::span<const double> weight, std::int64_t dim,
               std::span<const std::int64_t> index, std::span<double> out);

// dweight[index[i]] += dy[i], in the order of i. Adds to what dweight holds.
void embedding_backward(std::span<const float> dy, std::int64_t dim,
                        std::span<const std::int64_t> index, std::span<float> dweight);
void embedding_backward(std::span<const double> dy, std::int64_t dim,
                        std::span<const std::int64_t> index, std::span<double> dweight);

}  // namespace cpu

// On the current device and stream (runtime/device/stream.hpp): pointers are device memory.
namespace cuda {

// Waits for the stream: the first bad position is read back to the host.
void check_indices(const char* op, std::span<const std::int64_t> index, std::int64_t rows);
void embedding(std::span<const float> weight, std::int64_t dim, std::span<const std::int64_t> index,
               std::span<float> out);
void embedding(std::span<const double> weight, std::int64_t dim,
               std::span<const std::int64_t> index, std::span<double> out);
void embedding_backward(std::span<const float> dy, std::int64_t dim,
                        std::span<const std::int64_t> index, std::span<float> dweight);
void embedding_backward(std::span<const double> dy, std::int64_t dim,
                        std::span<const std::int64_t> index, std::span<double> dweight);

}  // namespace cuda

RINGSMITH_ON_DEVICE(check_indices)
RINGSMITH_ON_DEVICE(embedding)
RINGSMITH_ON_DEVICE(embedding_backward)

}  // namespace ringsmith::kernels
