// The oracles of pooling. In Mode::fast they call the fast versions.
#include "kernels/pool.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/mode.hpp"

namespace ringsmith::kernels::cpu {

namespace {

template <class F>
void for_each_window(const Pool2dShape& s, const F& f) {  // f(plane, window, flat output)
  std::int64_t k = 0;
  for (std::int64_t p = 0; p < s.planes; ++p)
    for (std::int64_t i = 0; i < s.out_h(); ++i)
      for (std::int64_t j = 0; j < s.out_w(); ++j)
        f(p, s.window(i, j), static_cast<std::size_t>(k++));
}

}  // namespace

template <class T>
void max_pool2d(const Pool2dShape& s, std::span<const T> x, std::span<T> y,
                std::span<std::int32_t> index) {
  if (mode() == Mode::fast) return fast::max_pool2d(s, x, y, index);
  for_each_window(s, [&](std::int64_t p, const PoolWindow& win, std::size_t k) {
    const T* plane = x.data() + p * s.h * s.w;
    std::int64_t best = win.top * s.w + win.left;
    for (std::int64_t r = win.top; r < win.bottom; ++r)
      for (std::int64_t c = win.left; c < win.right; ++c) {
        const T v = plane[r * s.w + c];
        if (v > plane[best] || std::isnan(v)) best = r * s.w + c;
      }
    y[k] = plane[best];
    index[k] = static_cast<std::int32_t>(best);
  });
}

template <class T>
void avg_pool2d(const Pool2dShape& s, std::span<const T> x, std::span<T> y) {
  if (mode() == Mode::fast) return fast::avg_pool2d(s, x, y);
  for_each_window(s, [&](std::int64_t p, const PoolWindow& win, std::size_t k) {
    T sum = 0;
    for (std::int64_t r = win.top; r < win.bottom; ++r)
      for (std::int64_t c = win.left; c < win.right; ++c) sum += x.data()[(p * s.h + r) * s.w + c];
    y[k] = sum / static_cast<T>(win.counted);
  });
}

template <class T>
void avg_pool2d_grad(const Pool2dShape& s, std::span<const T> dy, std::span<T> dx) {
  if (mode() == Mode::fast) return fast::avg_pool2d_grad(s, dy, dx);
  std::fill(dx.begin(), dx.end(), T(0));
  for_each_window(s, [&](std::int64_t p, const PoolWindow& win, std::size_t k) {
    const T share = dy[k] / static_cast<T>(win.counted);
    for (std::int64_t r = win.top; r < win.bottom; ++r)
      for (std::int64_t c = win.left; c < win.right; ++c)
        dx.data()[(p * s.h + r) * s.w + c] += share;
  });
}

template <class T>  // one addition per output, so there is nothing to speed up
void max_pool2d_grad(const Pool2dShape& s, std::span<const T> dy,
                     std::span<const std::int32_t> index, std::span<T> dx) {
  std::fill(dx.begin(), dx.end(), T(0));
  const std::int64_t outputs = s.out_h() * s.out_w();
  for (std::int64_t p = 0; p < s.planes; ++p)
    for (std::int64_t k = p * outputs; k < (p + 1) * outputs; ++k)
      dx.data()[p * s.h * s.w + index.data()[k]] += dy.data()[k];
}

RINGSMITH_FLOAT_AND_DOUBLE(max_pool2d)
RINGSMITH_FLOAT_AND_DOUBLE(max_pool2d_grad)
RINGSMITH_FLOAT_AND_DOUBLE(avg_pool2d)
RINGSMITH_FLOAT_AND_DOUBLE(avg_pool2d_grad)

}  // namespace ringsmith::kernels::cpu
