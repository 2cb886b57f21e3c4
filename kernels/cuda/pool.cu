// Pooling: a thread per element of the result. The backward passes gather: a pixel adds up the
// windows that contain it, in ascending order, so no two threads write the same element and the
// order of the sum is fixed.
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/strided.cuh"
#include "kernels/pool.hpp"

namespace ringsmith::kernels::cuda {

namespace {

// Calls f(plane, i, j, flat output) on the device.
template <class F>
void for_each_output(const Pool2dShape& s, const F& f) {
  for_each(s.planes * s.out_h() * s.out_w(), [=] __device__(std::int64_t k) {
    std::int64_t plane = k;
    const std::int64_t j = take_digit(plane, s.out_w());
    const std::int64_t i = take_digit(plane, s.out_h());
    f(plane, i, j, k);
  });
}

// The windows, first to last, that contain pixel `at` of one dimension.
struct Covering {
  std::int64_t first, last;
};
__device__ inline Covering covering(std::int64_t at, std::int64_t kernel, std::int64_t stride,
                                    std::int64_t pad, std::int64_t outputs) {
  const std::int64_t from_start = at + pad;  // within the padded image
  const std::int64_t first = from_start < kernel ? 0 : (from_start - kernel) / stride + 1;
  return {first, smaller(from_start / stride, outputs - 1)};
}

// dx is the sum of f(window's flat output, i, j, position in the plane) over a pixel's windows.
template <class T, class F>
void gather_windows(const Pool2dShape& s, T* dx, const F& f) {
  for_each(s.planes * s.h * s.w, [=] __device__(std::int64_t pixel) {
    std::int64_t plane = pixel;
    const std::int64_t x = take_digit(plane, s.w), y = take_digit(plane, s.h);
    const Covering rows = covering(y, s.kh, s.stride_h, s.pad_h, s.out_h());
    const Covering columns = covering(x, s.kw, s.stride_w, s.pad_w, s.out_w());
    T sum = 0;
    for (std::int64_t i = rows.first; i <= rows.last; ++i)
      for (std::int64_t j = columns.first; j <= columns.last; ++j)
        sum += f((plane * s.out_h() + i) * s.out_w() + j, i, j, y * s.w + x);
    dx[pixel] = sum;
  });
}

}  // namespace

template <class T>
void max_pool2d(const Pool2dShape& s, std::span<const T> x, std::span<T> y,
                std::span<std::int32_t> index) {
  const T* const in = x.data();
  T* const out = y.data();
  std::int32_t* const winners = index.data();
  for_each_output(s,
                  [=] __device__(std::int64_t p, std::int64_t i, std::int64_t j, std::int64_t k) {
                    const PoolWindow win = s.window(i, j);
                    const T* const plane = in + p * s.h * s.w;
                    std::int64_t best = win.top * s.w + win.left;
                    for (std::int64_t r = win.top; r < win.bottom; ++r)
                      for (std::int64_t c = win.left; c < win.right; ++c) {
                        const T v = plane[r * s.w + c];
                        if (v > plane[best] || is_nan(v)) best = r * s.w + c;
                      }
                    out[k] = plane[best];
                    winners[k] = static_cast<std::int32_t>(best);
                  });
}

template <class T>
void max_pool2d_grad(const Pool2dShape& s, std::span<const T> dy,
                     std::span<const std::int32_t> index, std::span<T> dx) {
  const T* const grad = dy.data();
  const std::int32_t* const winners = index.data();
  gather_windows(s, dx.data(),
                 [=] __device__(std::int64_t k, std::int64_t, std::int64_t, std::int64_t position) {
                   return winners[k] == position ? grad[k] : T(0);
                 });
}

template <class T>
void avg_pool2d(const Pool2dShape& s, std::span<const T> x, std::span<T> y) {
  const T* const in = x.data();
  T* const out = y.data();
  for_each_output(s,
                  [=] __device__(std::int64_t p, std::int64_t i, std::int64_t j, std::int64_t k) {
                    const PoolWindow win = s.window(i, j);
                    T sum = 0;
                    for (std::int64_t r = win.top; r < win.bottom; ++r)
                      for (std::int64_t c = win.left; c < win.right; ++c)
                        sum += in[(p * s.h + r) * s.w + c];
                    out[k] = sum / static_cast<T>(win.counted);
                  });
}

template <class T>
void avg_pool2d_grad(const Pool2dShape& s, std::span<const T> dy, std::span<T> dx) {
  const T* const grad = dy.data();
  gather_windows(s, dx.data(),
                 [=] __device__(std::int64_t k, std::int64_t i, std::int64_t j, std::int64_t) {
                   return grad[k] / static_cast<T>(s.window(i, j).counted);
                 });
}

RINGSMITH_FLOAT_AND_DOUBLE(max_pool2d)
RINGSMITH_FLOAT_AND_DOUBLE(max_pool2d_grad)
RINGSMITH_FLOAT_AND_DOUBLE(avg_pool2d)
RINGSMITH_FLOAT_AND_DOUBLE(avg_pool2d_grad)

}  // namespace ringsmith::kernels::cuda
