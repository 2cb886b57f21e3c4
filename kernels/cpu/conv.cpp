// The oracles of convolution. In Mode::fast they call the fast versions.
#include "kernels/conv.hpp"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/cascade.hpp"
#include "kernels/mode.hpp"

namespace ringsmith::kernels::cpu {

namespace {

std::int64_t input_index(std::int64_t o, std::int64_t stride, std::int64_t pad, std::int64_t k,
                         std::int64_t dilation) {
  return o * stride - pad + k * dilation;
}

template <class T>
T* pixel(const Conv2dShape& s, T* plane, std::int64_t i, std::int64_t j, std::int64_t kh,
         std::int64_t kw) {
  const std::int64_t y = input_index(i, s.stride_h, s.pad_h, kh, s.dilation_h);
  const std::int64_t x = input_index(j, s.stride_w, s.pad_w, kw, s.dilation_w);
  return y >= 0 && y < s.h && x >= 0 && x < s.w ? plane + y * s.w + x : nullptr;
}

template <class F>
void for_each_tap(const Conv2dShape& s, const F& f) {  // f(c in group, kh, kw, flat tap)
  std::int64_t tap = 0;
  for (std::int64_t c = 0; c < s.group_c(); ++c)
    for (std::int64_t kh = 0; kh < s.kh; ++kh)
      for (std::int64_t kw = 0; kw < s.kw; ++kw) f(c, kh, kw, tap++);
}

template <class F>
void for_each_output(const Conv2dShape& s, const F& f) {  // f(i, j, flat pixel)
  std::int64_t p = 0;
  for (std::int64_t i = 0; i < s.out_h(); ++i)
    for (std::int64_t j = 0; j < s.out_w(); ++j) f(i, j, p++);
}

template <class T>
T* input_group(const Conv2dShape& s, T* x, std::int64_t n, std::int64_t g) {
  return x + (n * s.c + g * s.group_c()) * s.h * s.w;
}

}  // namespace

// The fast versions support only float. For double (gradient checks), the oracle always runs.
template <class T>
void conv2d(const Conv2dShape& s, std::span<const T> x, std::span<const T> weight,
            std::span<const T> bias, std::span<T> y) {
  if constexpr (std::is_same_v<T, float>)
    if (mode() == Mode::fast) return fast::conv2d(s, x, weight, bias, y);
  T* out = y.data();
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t o = 0; o < s.out_c; ++o) {
      const T* planes = input_group(s, x.data(), n, o / s.group_out_c());
      const T* w = weight.data() + o * s.taps();
      for_each_output(s, [&](std::int64_t i, std::int64_t j, std::int64_t) {
        T acc = bias.empty() ? T(0) : bias[static_cast<std::size_t>(o)];
        for_each_tap(s, [&](std::int64_t c, std::int64_t kh, std::int64_t kw, std::int64_t tap) {
          const T* v = pixel(s, planes + c * s.h * s.w, i, j, kh, kw);
          acc += (v != nullptr ? *v : T(0)) * w[tap];  // the padding's zeros are multiplied, too
        });
        *out++ = acc;
      });
    }
}

template <class T>
void conv2d_grad_input(const Conv2dShape& s, std::span<const T> dy, std::span<const T> weight,
                       std::span<T> dx) {
  if constexpr (std::is_same_v<T, float>)
    if (mode() == Mode::fast) return fast::conv2d_grad_input(s, dy, weight, dx);
  std::fill(dx.begin(), dx.end(), T(0));
  const std::int64_t pixels = s.out_pixels();
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t g = 0; g < s.groups; ++g) {
      T* planes = input_group(s, dx.data(), n, g);
      const T* grad = dy.data() + (n * s.out_c + g * s.group_out_c()) * pixels;
      const T* w = weight.data() + g * s.group_out_c() * s.taps();
      for_each_tap(s, [&](std::int64_t c, std::int64_t kh, std::int64_t kw, std::int64_t tap) {
        for_each_output(s, [&](std::int64_t i, std::int64_t j, std::int64_t p) {
          T* target = pixel(s, planes + c * s.h * s.w, i, j, kh, kw);
          if (target == nullptr) return;
          T column = 0;
          for (std::int64_t o = 0; o < s.group_out_c(); ++o)
            column += w[o * s.taps() + tap] * grad[o * pixels + p];
          *target += column;
        });
      });
    }
}

template <class T>
void conv2d_grad_weight(const Conv2dShape& s, std::span<const T> dy, std::span<const T> x,
                        std::span<T> dw) {
  if constexpr (std::is_same_v<T, float>)
    if (mode() == Mode::fast) return fast::conv2d_grad_weight(s, dy, x, dw);
  std::fill(dw.begin(), dw.end(), T(0));
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t o = 0; o < s.out_c; ++o) {
      const T* planes = input_group(s, x.data(), n, o / s.group_out_c());
      const T* grad = dy.data() + (n * s.out_c + o) * s.out_pixels();
      for_each_tap(s, [&](std::int64_t c, std::int64_t kh, std::int64_t kw, std::int64_t tap) {
        T product = 0;
        for_each_output(s, [&](std::int64_t i, std::int64_t j, std::int64_t p) {
          const T* v = pixel(s, planes + c * s.h * s.w, i, j, kh, kw);
          product += grad[p] * (v != nullptr ? *v : T(0));
        });
        dw[static_cast<std::size_t>(o * s.taps() + tap)] += product;
      });
    }
}

template <class T>
void conv2d_grad_bias(const Conv2dShape& s, std::span<const T> dy, std::span<T> db) {
  if constexpr (std::is_same_v<T, float>)
    if (mode() == Mode::fast) return fast::conv2d_grad_bias(s, dy, db);
  std::fill(db.begin(), db.end(), T(0));
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t o = 0; o < s.out_c; ++o) {
      const T* grad = dy.data() + (n * s.out_c + o) * s.out_pixels();
      db[static_cast<std::size_t>(o)] +=
          contiguous_sum<T>(s.out_pixels(), [&](std::int64_t p) { return grad[p]; });
    }
}

RINGSMITH_FLOAT_AND_DOUBLE(conv2d)
RINGSMITH_FLOAT_AND_DOUBLE(conv2d_grad_input)
RINGSMITH_FLOAT_AND_DOUBLE(conv2d_grad_weight)
RINGSMITH_FLOAT_AND_DOUBLE(conv2d_grad_bias)

}  // namespace ringsmith::kernels::cpu
