// Pooling over windows of an image: the largest value, or the mean.
//
//   y[p][i][j] = max or mean of x[p][i*sh - ph .. + kh][j*sw - pw .. + kw]
//                                                                     for each plane p = (n, c)
//
// Windows may hang over the edge by the padding. For max the part outside does not exist; for the
// mean it counts as zeros, or not at all if count_include_pad is false.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/on_device.hpp"

namespace ringsmith::kernels {

struct Pool2dShape {
  std::int64_t planes = 0, h = 0, w = 0;  // planes = samples * channels
  std::int64_t kh = 0, kw = 0;            // window
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_h = 0, pad_w = 0;  // at most half the window
  bool count_include_pad = true;      // avg only

  [[nodiscard]] constexpr std::int64_t out_h() const { return (h + 2 * pad_h - kh) / stride_h + 1; }
  [[nodiscard]] constexpr std::int64_t out_w() const { return (w + 2 * pad_w - kw) / stride_w + 1; }
};

namespace cpu {

// Everything contiguous, outputs overwritten. T: float, double.
// index[k] = position in its plane of the value that won y[k]: the first of equals; a NaN wins
// (the last one, if there are several).
template <class T>
void max_pool2d(const Pool2dShape& s, std::span<const T> x, std::span<T> y,
                std::span<std::int32_t> index);
template <class T>
void max_pool2d_grad(const Pool2dShape& s, std::span<const T> dy,
                     std::span<const std::int32_t> index, std::span<T> dx);
// Sums in ascending (row, column), then divides.
template <class T>
void avg_pool2d(const Pool2dShape& s, std::span<const T> x, std::span<T> y);
template <class T>
void avg_pool2d_grad(const Pool2dShape& s, std::span<const T> dy, std::span<T> dx);

namespace fast {  // kernels/cpu/fast/pool.cpp: the same contracts
template <class T>
void max_pool2d(const Pool2dShape& s, std::span<const T> x, std::span<T> y,
                std::span<std::int32_t> index);
template <class T>
void avg_pool2d(const Pool2dShape& s, std::span<const T> x, std::span<T> y);
template <class T>
void avg_pool2d_grad(const Pool2dShape& s, std::span<const T> dy, std::span<T> dx);
}  // namespace fast

}  // namespace cpu

// On the current device and stream (runtime/device/stream.hpp): pointers are device memory.
namespace cuda {

template <class T>
void max_pool2d(const Pool2dShape& s, std::span<const T> x, std::span<T> y,
                std::span<std::int32_t> index);
template <class T>
void max_pool2d_grad(const Pool2dShape& s, std::span<const T> dy,
                     std::span<const std::int32_t> index, std::span<T> dx);
template <class T>
void avg_pool2d(const Pool2dShape& s, std::span<const T> x, std::span<T> y);
template <class T>
void avg_pool2d_grad(const Pool2dShape& s, std::span<const T> dy, std::span<T> dx);

}  // namespace cuda

RINGSMITH_ON_DEVICE(max_pool2d)
RINGSMITH_ON_DEVICE(max_pool2d_grad)
RINGSMITH_ON_DEVICE(avg_pool2d)
RINGSMITH_ON_DEVICE(avg_pool2d_grad)

}  // namespace ringsmith::kernels
