// Pooling over windows of an image: the largest value, or the mean.
//
//   y[p][i][j] = max or mean of x[p][i*sh - ph .. + kh][j*sw - pw .. + kw]
//                                                                     for each plane p = (n, c)
//
// Windows may extend into the padding, which the maximum ignores. The mean treats the padding as
// zeros, or ignores it, too, if count_include_pad is false.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/on_device.hpp"

namespace ringsmith::kernels {

// The part of a window that is inside the image.
struct PoolWindow {
  std::int64_t top, bottom, left, right;
  std::int64_t counted;  // divisor of the mean
};

struct Pool2dShape {
  std::int64_t planes = 0, h = 0, w = 0;  // planes = samples * channels
  std::int64_t kh = 0, kw = 0;            // window
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_h = 0, pad_w = 0;  // at most half the window
  bool count_include_pad = true;      // avg only

  [[nodiscard]] constexpr std::int64_t out_h() const { return (h + 2 * pad_h - kh) / stride_h + 1; }
  [[nodiscard]] constexpr std::int64_t out_w() const { return (w + 2 * pad_w - kw) / stride_w + 1; }

  [[nodiscard]] constexpr PoolWindow window(std::int64_t i, std::int64_t j) const {
    const std::int64_t top = i * stride_h - pad_h, left = j * stride_w - pad_w;
    // The divisor includes padding, but nothing beyond it, as in PyTorch.
    const std::int64_t rows = std::min(top + kh, h + pad_h) - top;
    const std::int64_t columns = std::min(left + kw, w + pad_w) - left;
    PoolWindow inside{std::max<std::int64_t>(top, 0), std::min(top + kh, h),
                      std::max<std::int64_t>(left, 0), std::min(left + kw, w), rows * columns};
    if (!count_include_pad)
      inside.counted = (inside.bottom - inside.top) * (inside.right - inside.left);
    return inside;
  }
};

// All arrays are contiguous. Outputs are overwritten. index[k] is the position of the maximum y[k]
// in its plane, and of the first of equal values. NaN counts as the maximum; of several NaNs,
// index[k] is the position of the last.
template <class T>
using MaxPool2dFn = void(const Pool2dShape& s, std::span<const T> x, std::span<T> y,
                         std::span<std::int32_t> index);
template <class T>
using MaxPool2dGradFn = void(const Pool2dShape& s, std::span<const T> dy,
                             std::span<const std::int32_t> index, std::span<T> dx);
RINGSMITH_KERNEL(max_pool2d, MaxPool2dFn)
RINGSMITH_KERNEL(max_pool2d_grad, MaxPool2dGradFn)

// Adds in ascending (row, column) order, then divides.
template <class T>
using AvgPool2dFn = void(const Pool2dShape& s, std::span<const T> x, std::span<T> y);
template <class T>
using AvgPool2dGradFn = void(const Pool2dShape& s, std::span<const T> dy, std::span<T> dx);
RINGSMITH_KERNEL(avg_pool2d, AvgPool2dFn)
RINGSMITH_KERNEL(avg_pool2d_grad, AvgPool2dGradFn)

namespace cpu::fast {
template <class T>
MaxPool2dFn<T> max_pool2d;
template <class T>
AvgPool2dFn<T> avg_pool2d;
template <class T>
AvgPool2dGradFn<T> avg_pool2d_grad;
}  // namespace cpu::fast

}  // namespace ringsmith::kernels
