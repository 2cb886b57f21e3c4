// softmax and log_softmax, forward and backward.
//
//   1  a thread per slice, which it reads three times (forward) or twice (backward). For slices
//      that are not contiguous (inner > 1). Neighbouring threads have neighbouring slices
//   2  a block per row of any length. In forward, one pass computes the maximum and the sum
//      together (log_sum.cuh), and a second pass writes the result
//   3  a warp (up to 512 floats) or a block (up to 4096) per row, which is kept in registers, so
//      that memory is read and written once
#include "kernels/cuda/elementwise_math.cuh"
#include "kernels/cuda/log_sum.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/strided.cuh"
#include "kernels/softmax.hpp"

namespace ringsmith::kernels::cuda {

namespace {

// The result for one element, from the statistics of its slice.
template <bool kLog, class T>
struct Forward {
  static __device__ T result(T x, T largest, T sum) {
    if constexpr (kLog)
      return x - largest - log_of(sum);
    else
      return exp_of(x - largest) / sum;
  }
};
// softmax sums dy y, log_softmax sums dy.
template <bool kLog, class T>
struct Backward {
  static __device__ T term(T dy, T y) { return kLog ? dy : dy * y; }
  static __device__ T result(T dy, T y, T sum) {
    if constexpr (kLog)
      return dy - exp_of(y) * sum;
    else
      return (dy - sum) * y;
  }
};

// --- version 1: slices of n elements `inner` apart

__device__ inline std::int64_t slice_begin(std::int64_t i, const Slices& s) {
  const std::int64_t within = take_digit(i, s.inner);
  return i * s.n * s.inner + within;
}

// Sum of term(0) .. term(n - 1) in two levels, because a long chain of additions would accumulate
// its roundings.
template <class T, class Term>
__device__ T chunked_sum(std::int64_t n, const Term& term) {
  constexpr std::int64_t kChunk = 32;
  T sum = 0;
  for (std::int64_t begin = 0; begin < n; begin += kChunk) {
    T part = 0;
    for (std::int64_t j = begin; j < n && j < begin + kChunk; ++j) part += term(j);
    sum += part;
  }
  return sum;
}

template <bool kLog, class T>
__global__ void forward_slices(const T* in, T* out, Slices s) {
  for (std::int64_t i = first_item(); i < s.outer * s.inner; i += item_stride()) {
    const std::int64_t offset = slice_begin(i, s);
    const T* const x = in + offset;
    T largest = kLowest<T>;
    for (std::int64_t j = 0; j < s.n; ++j) largest = Larger{}(largest, x[j * s.inner]);
    const T sum =
        chunked_sum<T>(s.n, [=](std::int64_t j) { return exp_of(x[j * s.inner] - largest); });
    for (std::int64_t j = 0; j < s.n; ++j)
      out[offset + j * s.inner] = Forward<kLog, T>::result(x[j * s.inner], largest, sum);
  }
}

template <bool kLog, class T>
__global__ void backward_slices(const T* grad, const T* result, T* out, Slices s) {
  for (std::int64_t i = first_item(); i < s.outer * s.inner; i += item_stride()) {
    const std::int64_t offset = slice_begin(i, s);
    const T *const dy = grad + offset, *const y = result + offset;
    const T sum = chunked_sum<T>(s.n, [=](std::int64_t j) {
      return Backward<kLog, T>::term(dy[j * s.inner], y[j * s.inner]);
    });
    for (std::int64_t j = 0; j < s.n; ++j)
      out[offset + j * s.inner] = Backward<kLog, T>::result(dy[j * s.inner], y[j * s.inner], sum);
  }
}

// --- version 2: rows of any length

template <bool kLog, class T>
__global__ void forward_any(const T* in, T* out, std::int64_t rows, std::int64_t n) {
  for (std::int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const T* const x = in + r * n;
    const auto [largest, sum] = max_and_sum(x, n);
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads)
      out[r * n + i] = Forward<kLog, T>::result(x[i], largest, sum);
  }
}

template <bool kLog, class T>
__global__ void backward_any(const T* grad, const T* result, T* out, std::int64_t rows,
                             std::int64_t n) {
  for (std::int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const T *const dy = grad + r * n, *const y = result + r * n;
    T part = 0;
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads)
      part += Backward<kLog, T>::term(dy[i], y[i]);
    const T sum = block_reduce<kThreads>(part, Plus{});
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads)
      out[r * n + i] = Backward<kLog, T>::result(dy[i], y[i], sum);
  }
}

// --- version 3: rows in registers

template <class Size, bool kLog, class T>
__global__ void __launch_bounds__(kThreads)
    forward_rows(const T* in, T* out, std::int64_t rows, std::int64_t n, bool packs) {
  constexpr int kTeam = Size::kTeam;
  each_row<kTeam>(rows, [&](std::int64_t r, int lane) {
    RowShare<T, kTeam, Size::kPacks> row{};
    row.load(in + r * n, n, lane, packs);
    T largest = kLowest<T>;
    row.each(n, lane, [&](T& x, std::int64_t) { largest = Larger{}(largest, x); });
    largest = team_reduce<kTeam>(largest, Larger{});
    const T sum = row.sum(n, lane, [=](T& x, std::int64_t) {
      const T e = exp_of(x - largest);
      if (!kLog) x = e;
      return e;
    });
    row.each(n, lane, [=](T& x, std::int64_t) {
      if constexpr (kLog)
        x = Forward<kLog, T>::result(x, largest, sum);
      else
        x = x / sum;
    });
    row.store(out + r * n, n, lane, packs);
  });
}

template <class Size, bool kLog, class T>
__global__ void __launch_bounds__(kThreads)
    backward_rows(const T* grad, const T* result, T* out, std::int64_t rows, std::int64_t n,
                  bool packs) {
  constexpr int kTeam = Size::kTeam;
  each_row<kTeam>(rows, [&](std::int64_t r, int lane) {
    using Share = RowShare<T, kTeam, Size::kPacks>;
    Share dy{}, y{};
    dy.load(grad + r * n, n, lane, packs);
    y.load(result + r * n, n, lane, packs);
    T sum = 0;
    dy.with([&](T& g, T& value) { sum += Backward<kLog, T>::term(g, value); }, y);
    sum = team_reduce<kTeam>(sum, Plus{});
    dy.with([=](T& g, T& value) { g = Backward<kLog, T>::result(g, value, sum); }, y);
    dy.store(out + r * n, n, lane, packs);
  });
}

// `held` returns the kernel for a team's size. `arrays` are the inputs and, last, the output.
template <class T, class OfSlices, class OfRows, class OfAnyRows, class... Arrays>
void launch_version(const Slices& s, OfSlices* slices, const OfRows& held, OfAnyRows* any,
                    Arrays*... arrays) {
  const std::int64_t number = s.outer * s.inner;
  if (number == 0 || s.n == 0) return;
  const bool packs = s.n % kPack<T> == 0 && aligned(arrays...);
  if (s.inner != 1) return launch_over(slices, number, kThreads, arrays..., s);
  const bool done = with_team<T, kRowPacks>(s.n, [&]<class Size>(Size size) {
    launch_over(held(size), number, kThreads / Size::kTeam, arrays..., number, s.n, packs);
  });
  if (!done) launch_over(any, number, 1, arrays..., number, s.n);
}

template <bool kLog, class T>
void forward(std::span<const T> x, std::span<T> y, Slices s) {
  launch_version<T>(
      s, forward_slices<kLog, T>, []<class Size>(Size) { return forward_rows<Size, kLog, T>; },
      forward_any<kLog, T>, x.data(), y.data());
}

template <bool kLog, class T>
void backward(std::span<const T> dy, std::span<const T> y, std::span<T> dx, Slices s) {
  launch_version<T>(
      s, backward_slices<kLog, T>, []<class Size>(Size) { return backward_rows<Size, kLog, T>; },
      backward_any<kLog, T>, dy.data(), y.data(), dx.data());
}

}  // namespace

template <class T>
void softmax(std::span<const T> x, std::span<T> y, Slices slices) {
  forward<false>(x, y, slices);
}

template <class T>
void log_softmax(std::span<const T> x, std::span<T> y, Slices slices) {
  forward<true>(x, y, slices);
}

template <class T>
void softmax_backward(std::span<const T> dy, std::span<const T> y, std::span<T> dx, Slices slices) {
  backward<false>(dy, y, dx, slices);
}

template <class T>
void log_softmax_backward(std::span<const T> dy, std::span<const T> y, std::span<T> dx,
                          Slices slices) {
  backward<true>(dy, y, dx, slices);
}

RINGSMITH_FLOAT_AND_DOUBLE(softmax)
RINGSMITH_FLOAT_AND_DOUBLE(log_softmax)
RINGSMITH_FLOAT_AND_DOUBLE(softmax_backward)
RINGSMITH_FLOAT_AND_DOUBLE(log_softmax_backward)

}  // namespace ringsmith::kernels::cuda
