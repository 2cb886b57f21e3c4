// Convolution as matrix products whose im2col factors are never stored. The three products of a
// layer are instances of the register-blocked tile (tile_product.cuh), which calls a function to
// load each element.
//
//   forward   y  (out_c x images pixels)  =  w   (out_c x taps)          . x through its windows
//   input     dx (c x images pixels)      =  w^T (c x out_c taps')       . dy, windows backwards
//   weight    dw (out_c x taps)           =  dy  (out_c x images pixels) . (x through windows)^T
//
// An im2col matrix in memory would be kh kw times as large as the image. The gradient of the input
// gathers, i.e. each pixel finds the outputs that read it, so no two threads write the same
// element.
//
// dw is small, but its sums are long. They are cut into chunks whose length depends only on the
// shape, and the partial results are added in order.
#include "kernels/conv.hpp"
#include "kernels/cuda/fold.cuh"
#include "kernels/cuda/tile_product.cuh"

namespace ringsmith::kernels::cuda {

namespace {

struct Pixel {
  std::int64_t sample, y, x;
  __device__ Pixel(std::int64_t i, std::int64_t height, std::int64_t width) {
    x = take_digit(i, width);
    y = take_digit(i, height);
    sample = i;
  }
};

struct Tap {
  std::int64_t channel, kh, kw;
  __device__ Tap(std::int64_t i, const Conv2dShape& s) {
    kw = take_digit(i, s.kw);
    kh = take_digit(i, s.kh);
    channel = i;
  }
};

template <class Number>
struct Layer {
  using T = Number;
  Conv2dShape s;
  const T *x, *w, *dy;
  std::int64_t group;

  // The input element that output pixel `at` reads through `tap`.
  __device__ T seen(const Pixel& at, const Tap& tap) const {
    const std::int64_t y = at.y * s.stride_h - s.pad_h + tap.kh * s.dilation_h;
    const std::int64_t x_ = at.x * s.stride_w - s.pad_w + tap.kw * s.dilation_w;
    if (y < 0 || y >= s.h || x_ < 0 || x_ >= s.w) return 0;
    const std::int64_t channel = group * s.group_c() + tap.channel;
    return x[((at.sample * s.c + channel) * s.h + y) * s.w + x_];
  }
};

template <class T>
struct Forward : Layer<T> {
  using Layer<T>::s, Layer<T>::group;
  std::int64_t m, n;
  const T* bias;
  T* y;
  static constexpr bool a_along_k = true, b_along_n = true;

  __device__ const T* row(std::int64_t o) const {
    return this->w + (group * s.group_out_c() + o) * s.taps();
  }
  __device__ Pixel column(std::int64_t j) const { return {j, s.out_h(), s.out_w()}; }
  __device__ T a(const T* row, std::int64_t k) const { return row[k]; }
  __device__ T b(std::int64_t k, const Pixel& at) const { return this->seen(at, {k, s}); }
  __device__ void store(std::int64_t o, std::int64_t j, T sum) const {
    const Pixel at(j, s.out_h(), s.out_w());
    const std::int64_t channel = group * s.group_out_c() + o;
    if (bias != nullptr) sum += bias[channel];
    y[((at.sample * s.out_c + channel) * s.out_h() + at.y) * s.out_w() + at.x] = sum;
  }
};

template <class T>
struct InputGradient : Layer<T> {
  using Layer<T>::s, Layer<T>::group;
  std::int64_t m, n;
  T* dx;
  static constexpr bool a_along_k = true, b_along_n = true;

  __device__ std::int64_t row(std::int64_t c) const { return c; }
  __device__ Pixel column(std::int64_t j) const { return {j, s.h, s.w}; }
  // k numbers the pairs of an output channel of the group (Tap::channel) and an element of the
  // kernel.
  __device__ T a(std::int64_t c, std::int64_t k) const {
    const Tap tap(k, s);
    const std::int64_t o = group * s.group_out_c() + tap.channel;
    return this->w[((o * s.group_c() + c) * s.kh + tap.kh) * s.kw + tap.kw];
  }
  __device__ T b(std::int64_t k, const Pixel& at) const {
    const Tap tap(k, s);
    std::int64_t i = at.y + s.pad_h - tap.kh * s.dilation_h;
    std::int64_t j = at.x + s.pad_w - tap.kw * s.dilation_w;
    if (i < 0 || j < 0 || take_digit(i, s.stride_h) != 0 || take_digit(j, s.stride_w) != 0)
      return 0;  // before the first window or between two windows
    if (i >= s.out_h() || j >= s.out_w()) return 0;
    const std::int64_t o = group * s.group_out_c() + tap.channel;
    return this->dy[((at.sample * s.out_c + o) * s.out_h() + i) * s.out_w() + j];
  }
  __device__ void store(std::int64_t c, std::int64_t j, T sum) const {
    const Pixel at(j, s.h, s.w);
    dx[((at.sample * s.c + group * s.group_c() + c) * s.h + at.y) * s.w + at.x] = sum;
  }
};

template <class T>
struct WeightGradient : Layer<T> {
  using Layer<T>::s, Layer<T>::group;
  std::int64_t m, n;
  T* dw;  // of this chunk
  static constexpr bool a_along_k = true, b_along_n = false;

  __device__ std::int64_t row(std::int64_t o) const { return group * s.group_out_c() + o; }
  __device__ Tap column(std::int64_t j) const { return {j, s}; }
  __device__ T a(std::int64_t channel, std::int64_t k) const {
    std::int64_t sample = k;
    const std::int64_t pixel = take_digit(sample, s.out_pixels());
    return this->dy[(sample * s.out_c + channel) * s.out_pixels() + pixel];
  }
  __device__ T b(std::int64_t k, const Tap& tap) const {
    return this->seen({k, s.out_h(), s.out_w()}, tap);
  }
  __device__ void store(std::int64_t o, std::int64_t j, T sum) const {
    dw[(group * s.group_out_c() + o) * s.taps() + j] = sum;
  }
};

template <class T>
struct ShapeFor {
  using type = TileShape<64, 64, 16, 8, 8>;
};
template <>
struct ShapeFor<double> {
  using type = TileShape<32, 32, 16, 4, 4>;
};

// Blocks: (columns, rows, groups times chunks). Chunk c writes at offset c * chunk_stride.
template <class Problem>
__global__ void __launch_bounds__(64)
    convolve(Problem problem, std::int64_t depth, std::int64_t chunk, std::int64_t chunk_stride) {
  using Shape = typename ShapeFor<typename Problem::T>::type;
  std::int64_t number = blockIdx.z;
  problem.group = take_digit(number, problem.s.groups);
  if constexpr (requires { problem.dw; }) problem.dw += number * chunk_stride;
  tile_product<Shape>(problem, std::int64_t{blockIdx.y} * Shape::kM,
                      std::int64_t{blockIdx.x} * Shape::kN, number * chunk,
                      smaller(depth, (number + 1) * chunk));
}

template <class Problem>
void run(const Problem& problem, std::int64_t depth, std::int64_t chunks = 1,
         std::int64_t chunk_stride = 0) {
  using Shape = typename ShapeFor<typename Problem::T>::type;
  if (problem.m * problem.n == 0) return;
  dim3 grid = tile_grid(problem.m, problem.n, Shape::kM, Shape::kN, 1);
  grid.z = static_cast<unsigned>(problem.s.groups * chunks);
  launch(convolve<Problem>, grid, Shape::kThreads, 0, stream(), problem, depth,
         ceil_div(depth, chunks), chunk_stride);
}

// The most terms in a partial sum of dw, unless that would need more than 256 partial sums.
constexpr std::int64_t kChunk = 4096;

}  // namespace

template <class T>
void conv2d(const Conv2dShape& s, std::span<const T> x, std::span<const T> weight,
            std::span<const T> bias, std::span<T> y) {
  run(Forward<T>{{s, x.data(), weight.data(), nullptr, 0},
                 s.group_out_c(),
                 s.n * s.out_pixels(),
                 bias.empty() ? nullptr : bias.data(),
                 y.data()},
      s.taps());
}

template <class T>
void conv2d_grad_input(const Conv2dShape& s, std::span<const T> dy, std::span<const T> weight,
                       std::span<T> dx) {
  run(
      InputGradient<T>{
          {s, nullptr, weight.data(), dy.data(), 0}, s.group_c(), s.n * s.h * s.w, dx.data()},
      s.group_out_c() * s.kh * s.kw);
}

template <class T>
void conv2d_grad_weight(const Conv2dShape& s, std::span<const T> dy, std::span<const T> x,
                        std::span<T> dw) {
  const std::int64_t depth = s.n * s.out_pixels(), size = s.out_c * s.taps();
  const std::int64_t chunks = std::clamp<std::int64_t>(ceil_div(depth, kChunk), 1, 256);
  const Layer<T> layer{s, x.data(), nullptr, dy.data(), 0};
  if (chunks == 1)
    return run(WeightGradient<T>{layer, s.group_out_c(), s.taps(), dw.data()}, depth);
  const Scratch<T> partials(chunks * size);
  run(WeightGradient<T>{layer, s.group_out_c(), s.taps(), partials.data()}, depth, chunks, size);
  fold_nest(SumInto<T>{{}, partials.data(), dw.data(), false}, one_run<2>(size, {1, 1}),
            one_run<1>(chunks, {size}), false);
}

template <class T>
void conv2d_grad_bias(const Conv2dShape& s, std::span<const T> dy, std::span<T> db) {
  fold_channels(SumInto<T>{{}, dy.data(), db.data(), false}, s.n, s.out_c, s.out_pixels());
}

RINGSMITH_FLOAT_AND_DOUBLE(conv2d)
RINGSMITH_FLOAT_AND_DOUBLE(conv2d_grad_input)
RINGSMITH_FLOAT_AND_DOUBLE(conv2d_grad_weight)
RINGSMITH_FLOAT_AND_DOUBLE(conv2d_grad_bias)

}  // namespace ringsmith::kernels::cuda
