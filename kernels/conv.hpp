// Two-dimensional convolution, NCHW, with stride, padding, dilation and groups.
//
//   y[n][o][i][j] = b[o] + sum over (c, kh, kw) of  x[n][c][i*sh - ph + kh*dh][j*sw - pw + kw*dw]
//                                                 * w[o][c][kh][kw]
//
// Padding is zero, and c runs over the channels of o's group. The gradients of x and w are the same
// triple sum with the roles of x, w and y exchanged.
//
// The oracle (kernels/cpu/conv.cpp) runs these loops in the order of PyTorch's scalar build. For y,
// each sum starts from the bias and adds in ascending (c, kh, kw). For dw, it sums each sample over
// ascending output pixels, and adds the samples in order. For dx, it sums each tap of a window over
// the output channels, and adds the taps in ascending (kh, kw). For db, it computes one
// contiguous_sum (cpu/cascade.hpp) per sample, and adds the samples in order.
//
// The fast version is kernels/cpu/fast/conv.cpp.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/on_device.hpp"

namespace ringsmith::kernels {

struct Conv2dShape {
  std::int64_t n = 0, c = 0, h = 0, w = 0;      // input
  std::int64_t out_c = 0, kh = 0, kw = 0;       // weight (out_c, c / groups, kh, kw)
  std::int64_t stride_h = 1, stride_w = 1;      // pixels
  std::int64_t pad_h = 0, pad_w = 0;            // rows and columns of zeros on each side
  std::int64_t dilation_h = 1, dilation_w = 1;  // distance between two taps of the kernel
  std::int64_t groups = 1;                      // divides c and out_c

  [[nodiscard]] constexpr std::int64_t out_h() const {
    return out(h, pad_h, dilation_h, kh, stride_h);
  }
  [[nodiscard]] constexpr std::int64_t out_w() const {
    return out(w, pad_w, dilation_w, kw, stride_w);
  }

  // Sizes per group and per sample, in elements.
  [[nodiscard]] constexpr std::int64_t group_c() const { return c / groups; }
  [[nodiscard]] constexpr std::int64_t group_out_c() const { return out_c / groups; }
  [[nodiscard]] constexpr std::int64_t taps() const { return group_c() * kh * kw; }
  [[nodiscard]] constexpr std::int64_t out_pixels() const { return out_h() * out_w(); }

 private:
  static constexpr std::int64_t out(std::int64_t size, std::int64_t pad, std::int64_t dilation,
                                    std::int64_t kernel, std::int64_t stride) {
    return (size + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
  }
};

inline void look(Operands& o, const Conv2dShape& s) {
  o.pairs = static_cast<double>(s.n * s.out_c * s.out_pixels() * s.taps());
}

// All arrays are contiguous, with the lengths that the shape implies. Outputs are overwritten. bias
// has out_c elements or is empty.
template <class T>
using Conv2dFn = void(const Conv2dShape& s, std::span<const T> x, std::span<const T> weight,
                      std::span<const T> bias, std::span<T> y);
template <class T>
using Conv2dGradInputFn = void(const Conv2dShape& s, std::span<const T> dy,
                               std::span<const T> weight, std::span<T> dx);
template <class T>
using Conv2dGradWeightFn = void(const Conv2dShape& s, std::span<const T> dy, std::span<const T> x,
                                std::span<T> dw);
template <class T>
using Conv2dGradBiasFn = void(const Conv2dShape& s, std::span<const T> dy, std::span<T> db);
RINGSMITH_KERNEL(conv2d, Conv2dFn)
RINGSMITH_KERNEL(conv2d_grad_input, Conv2dGradInputFn)
RINGSMITH_KERNEL(conv2d_grad_weight, Conv2dGradWeightFn)
RINGSMITH_KERNEL(conv2d_grad_bias, Conv2dGradBiasFn)

namespace cpu::fast {
Conv2dFn<float> conv2d;
Conv2dGradInputFn<float> conv2d_grad_input;
Conv2dGradWeightFn<float> conv2d_grad_weight;
Conv2dGradBiasFn<float> conv2d_grad_bias;
}  // namespace cpu::fast

}  // namespace ringsmith::kernels
