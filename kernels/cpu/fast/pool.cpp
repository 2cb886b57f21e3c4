// Pooling, vectorised: the innermost loop runs over the outputs of a row for one tap.
//
//   oracle   for each output: for each tap          a short loop with bounds checks
//   here     for each tap: for each output of a row  a long loop without bounds checks
//
// Every sum adds the same terms in the same order, so the results equal the oracle's bit for bit.
#include "kernels/pool.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/fast/window.hpp"
#include "kernels/parallel.hpp"

namespace ringsmith::kernels::cpu::fast {

namespace {

// Calls f(first output, one past the last, position in the plane of the first output's pixel) for
// each tap of output row i that is inside the image for some outputs. Order::forwards visits the
// taps of an output in ascending (row, column); Order::backwards visits the outputs of a pixel in
// ascending order.
enum class Order : std::uint8_t { forwards, backwards };
template <class F>
void for_each_tap_of_row(const Pool2dShape& s, std::int64_t i, const F& f,
                         Order order = Order::forwards) {
  for (std::int64_t kh = 0; kh < s.kh; ++kh) {
    const std::int64_t row = i * s.stride_h - s.pad_h + kh;
    if (row < 0 || row >= s.h) continue;
    for (std::int64_t k = 0; k < s.kw; ++k) {
      const std::int64_t kw = order == Order::forwards ? k : s.kw - 1 - k;
      const Range r = inside(s.w, s.out_w(), s.stride_w, kw - s.pad_w);
      if (r.begin < r.end) f(r.begin, r.end, row * s.w + r.begin * s.stride_w + kw - s.pad_w);
    }
  }
}

template <class T>
void max_row(T* __restrict best, std::int32_t* __restrict where, const T* __restrict x,
             std::int64_t n, std::int64_t stride, std::int32_t position) {
  for (std::int64_t j = 0; j < n; ++j) {
    const T v = x[j * stride];
    const bool better = v > best[j] || std::isnan(v) || where[j] < 0;  // where < 0: the first tap
    best[j] = better ? v : best[j];
    where[j] = better ? position + static_cast<std::int32_t>(j * stride) : where[j];
  }
}

// Returns how many rows (or columns) of a window count. The divisor is rows times columns.
std::int64_t counted(std::int64_t o, std::int64_t stride, std::int64_t pad, std::int64_t kernel,
                     std::int64_t size, bool include_pad) {
  const std::int64_t begin = o * stride - pad;
  return include_pad ? std::min(begin + kernel, size + pad) - begin
                     : std::min(begin + kernel, size) - std::max<std::int64_t>(begin, 0);
}

template <class T>
std::vector<T> column_counts(const Pool2dShape& s) {
  std::vector<T> counts;
  for (std::int64_t j = 0; j < s.out_w(); ++j)
    counts.push_back(
        static_cast<T>(counted(j, s.stride_w, s.pad_w, s.kw, s.w, s.count_include_pad)));
  return counts;
}

template <class T>
T row_count(const Pool2dShape& s, std::int64_t i) {
  return static_cast<T>(counted(i, s.stride_h, s.pad_h, s.kh, s.h, s.count_include_pad));
}

}  // namespace

template <class T>
void max_pool2d(const Pool2dShape& s, std::span<const T> x, std::span<T> y,
                std::span<std::int32_t> index) {
  parallel_for(s.planes, grain_of(s.h * s.w), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t p = first; p < last; ++p)
      for (std::int64_t i = 0; i < s.out_h(); ++i) {
        const T* plane = x.data() + p * s.h * s.w;
        T* best = y.data() + (p * s.out_h() + i) * s.out_w();
        std::int32_t* where = index.data() + (p * s.out_h() + i) * s.out_w();
        std::fill_n(best, s.out_w(), -std::numeric_limits<T>::infinity());
        std::fill_n(where, s.out_w(), -1);
        for_each_tap_of_row(s, i, [&](std::int64_t begin, std::int64_t end, std::int64_t at) {
          max_row(best + begin, where + begin, plane + at, end - begin, s.stride_w,
                  static_cast<std::int32_t>(at));
        });
      }
  });
}

template <class T>
void avg_pool2d(const Pool2dShape& s, std::span<const T> x, std::span<T> y) {
  const std::vector<T> columns = column_counts<T>(s);
  parallel_for(s.planes, grain_of(s.h * s.w), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t p = first; p < last; ++p)
      for (std::int64_t i = 0; i < s.out_h(); ++i) {
        T* sum = y.data() + (p * s.out_h() + i) * s.out_w();
        std::fill_n(sum, s.out_w(), T(0));
        for_each_tap_of_row(s, i, [&](std::int64_t begin, std::int64_t end, std::int64_t at) {
          const T* v = x.data() + p * s.h * s.w + at;
          for (std::int64_t j = begin; j < end; ++j) sum[j] += v[(j - begin) * s.stride_w];
        });
        const T rows = row_count<T>(s, i);
        for (std::size_t j = 0; j < columns.size(); ++j) sum[j] /= rows * columns[j];
      }
  });
}

template <class T>
void avg_pool2d_grad(const Pool2dShape& s, std::span<const T> dy, std::span<T> dx) {
  const std::vector<T> columns = column_counts<T>(s);
  std::fill(dx.begin(), dx.end(), T(0));
  parallel_for(s.planes, grain_of(s.h * s.w), [&](std::int64_t first, std::int64_t last) {
    std::vector<T> share(columns.size());
    for (std::int64_t p = first; p < last; ++p)
      for (std::int64_t i = 0; i < s.out_h(); ++i) {
        const T* grad = dy.data() + (p * s.out_h() + i) * s.out_w();
        const T rows = row_count<T>(s, i);
        for (std::size_t j = 0; j < columns.size(); ++j) share[j] = grad[j] / (rows * columns[j]);
        const auto give = [&](std::int64_t begin, std::int64_t end, std::int64_t at) {
          T* to = dx.data() + p * s.h * s.w + at;
          for (std::int64_t j = begin; j < end; ++j)
            to[(j - begin) * s.stride_w] += share[static_cast<std::size_t>(j)];
        };
        for_each_tap_of_row(s, i, give, Order::backwards);
      }
  });
}

RINGSMITH_FLOAT_AND_DOUBLE(max_pool2d)
RINGSMITH_FLOAT_AND_DOUBLE(avg_pool2d)
RINGSMITH_FLOAT_AND_DOUBLE(avg_pool2d_grad)

}  // namespace ringsmith::kernels::cpu::fast
