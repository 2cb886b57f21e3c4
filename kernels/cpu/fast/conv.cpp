// Convolution as a matrix product, one sample and one group at a time:
//
//   columns (taps x out pixels): row (c, kh, kw) holds, for every output pixel, the input pixel
//                                that this tap sees, zero in the padding
//   y  = weight (out_c x taps) columns + bias
//   dw = sum over samples of dy columns^T
//   dx = col2im(weight^T dy): every column entry added back to the pixel it came from
//
// The columns cost taps times the memory of an image, and save all index arithmetic: the product
// runs at the speed of the machine. A 1 x 1 kernel without stride or padding needs no columns: the
// image is already that matrix.
#include "kernels/conv.hpp"

#include <algorithm>
#include <vector>

#include "kernels/cpu/fast/window.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/parallel.hpp"

namespace ringsmith::kernels::cpu::fast {

namespace {

bool image_is_columns(const Conv2dShape& s) {
  return s.kh == 1 && s.kw == 1 && s.stride_h == 1 && s.stride_w == 1 && s.pad_h == 0 &&
         s.pad_w == 0;
}

// Calls f(column row of the tap, out row i, outputs [begin, end), image position of the first) for
// all taps with channels in [first, last) and all out rows; an out row that sees only padding has
// an empty range.
template <class F>
void for_each_run(const Conv2dShape& s, std::int64_t first, std::int64_t last, const F& f) {
  for (std::int64_t c = first; c < last; ++c)
    for (std::int64_t kh = 0; kh < s.kh; ++kh)
      for (std::int64_t kw = 0; kw < s.kw; ++kw) {
        const std::int64_t shift = kw * s.dilation_w - s.pad_w;
        const Range r = inside(s.w, s.out_w(), s.stride_w, shift);
        for (std::int64_t i = 0; i < s.out_h(); ++i) {
          const std::int64_t row = i * s.stride_h - s.pad_h + kh * s.dilation_h;
          const bool empty = row < 0 || row >= s.h || r.begin == r.end;
          f((c * s.kh + kh) * s.kw + kw, i, empty ? Range{} : r,
            empty ? 0 : (c * s.h + row) * s.w + r.begin * s.stride_w + shift);
        }
      }
}

void im2col(const Conv2dShape& s, const float* image, float* columns) {
  const std::int64_t grain = grain_of(s.kh * s.kw * s.out_pixels());
  parallel_for(s.group_c(), grain, [&](std::int64_t first, std::int64_t last) {
    for_each_run(s, first, last, [&](std::int64_t tap, std::int64_t i, Range r, std::int64_t at) {
      float* out = columns + tap * s.out_pixels() + i * s.out_w();
      std::fill_n(out, r.begin, 0.0F);
      const std::int64_t n = r.end - r.begin;
      if (s.stride_w == 1)
        std::copy_n(image + at, n, out + r.begin);
      else
        for (std::int64_t j = 0; j < n; ++j) out[r.begin + j] = image[at + j * s.stride_w];
      std::fill_n(out + r.end, s.out_w() - r.end, 0.0F);
    });
  });
}

void col2im(const Conv2dShape& s, const float* columns, float* image) {  // adds
  const std::int64_t grain = grain_of(s.kh * s.kw * s.out_pixels());
  parallel_for(s.group_c(), grain, [&](std::int64_t first, std::int64_t last) {
    for_each_run(s, first, last, [&](std::int64_t tap, std::int64_t i, Range r, std::int64_t at) {
      const float* in = columns + tap * s.out_pixels() + i * s.out_w() + r.begin;
      float* to = image + at;
      const std::int64_t n = r.end - r.begin;
      if (s.stride_w == 1)
        for (std::int64_t j = 0; j < n; ++j) to[j] += in[j];
      else
        for (std::int64_t j = 0; j < n; ++j) to[j * s.stride_w] += in[j];
    });
  });
}

// f(sample, group, first input plane, first output plane, first weight) for every product.
template <class F>
void for_each_product(const Conv2dShape& s, const F& f) {
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t g = 0; g < s.groups; ++g)
      f(n, g, (n * s.c + g * s.group_c()) * s.h * s.w,
        (n * s.out_c + g * s.group_out_c()) * s.out_pixels(), g * s.group_out_c() * s.taps());
}

std::vector<float> column_buffer(const Conv2dShape& s) {
  return std::vector<float>(
      image_is_columns(s) ? 0 : static_cast<std::size_t>(s.taps() * s.out_pixels()));
}

// The columns of the image at x: in buffer, or x itself.
const float* columns_of(const Conv2dShape& s, const float* x, std::vector<float>& buffer) {
  if (image_is_columns(s)) return x;
  im2col(s, x, buffer.data());
  return buffer.data();
}

}  // namespace

void conv2d(const Conv2dShape& s, std::span<const float> x, std::span<const float> weight,
            std::span<const float> bias, std::span<float> y) {
  if (y.empty()) return;
  std::vector<float> buffer = column_buffer(s);
  const std::int64_t pixels = s.out_pixels();
  for_each_product(
      s, [&](std::int64_t, std::int64_t g, std::int64_t in, std::int64_t out, std::int64_t w) {
        float* to = y.data() + out;
        for (std::int64_t o = 0; o < s.group_out_c() && !bias.empty(); ++o)
          std::fill_n(to + o * pixels, pixels, bias.data()[g * s.group_out_c() + o]);
        sgemm({.m = s.group_out_c(),
               .n = pixels,
               .k = s.taps(),
               .a = weight.data() + w,
               .lda = s.taps(),
               .b = columns_of(s, x.data() + in, buffer),
               .ldb = pixels,
               .beta = bias.empty() ? 0.0F : 1.0F,
               .c = to,
               .ldc = pixels});
      });
}

void conv2d_grad_input(const Conv2dShape& s, std::span<const float> dy,
                       std::span<const float> weight, std::span<float> dx) {
  if (dy.empty()) std::fill(dx.begin(), dx.end(), 0.0F);
  if (dy.empty()) return;
  const bool direct = image_is_columns(s);
  if (!direct) std::fill(dx.begin(), dx.end(), 0.0F);
  std::vector<float> buffer = column_buffer(s);
  for_each_product(
      s, [&](std::int64_t, std::int64_t, std::int64_t in, std::int64_t out, std::int64_t w) {
        float* columns = direct ? dx.data() + in : buffer.data();
        sgemm({.trans_a = Transpose::yes,
               .m = s.taps(),
               .n = s.out_pixels(),
               .k = s.group_out_c(),
               .a = weight.data() + w,
               .lda = s.taps(),
               .b = dy.data() + out,
               .ldb = s.out_pixels(),
               .c = columns,
               .ldc = s.out_pixels()});
        if (!direct) col2im(s, columns, dx.data() + in);
      });
}

void conv2d_grad_weight(const Conv2dShape& s, std::span<const float> dy, std::span<const float> x,
                        std::span<float> dw) {
  if (dy.empty()) std::fill(dw.begin(), dw.end(), 0.0F);
  if (dy.empty()) return;
  std::vector<float> buffer = column_buffer(s);
  for_each_product(
      s, [&](std::int64_t n, std::int64_t, std::int64_t in, std::int64_t out, std::int64_t w) {
        sgemm({.trans_b = Transpose::yes,
               .m = s.group_out_c(),
               .n = s.taps(),
               .k = s.out_pixels(),
               .a = dy.data() + out,
               .lda = s.out_pixels(),
               .b = columns_of(s, x.data() + in, buffer),
               .ldb = s.out_pixels(),
               .beta = n == 0 ? 0.0F : 1.0F,
               .c = dw.data() + w,
               .ldc = s.taps()});
      });
}

void conv2d_grad_bias(const Conv2dShape& s, std::span<const float> dy, std::span<float> db) {
  constexpr std::size_t kLanes = 16;  // independent sums, so that the loop becomes vectors
  const auto pixels = static_cast<std::size_t>(s.out_pixels());
  for (std::int64_t o = 0; o < s.out_c; ++o) {
    double lanes[kLanes] = {};
    for (std::int64_t n = 0; n < s.n; ++n) {
      const float* grad = dy.data() + (n * s.out_c + o) * s.out_pixels();
      std::size_t p = 0;
      for (; p + kLanes <= pixels; p += kLanes)
        for (std::size_t l = 0; l < kLanes; ++l) lanes[l] += grad[p + l];
      for (std::size_t l = 0; p < pixels; ++p, ++l) lanes[l] += grad[p];
    }
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    db[static_cast<std::size_t>(o)] = static_cast<float>(sum);
  }
}

}  // namespace ringsmith::kernels::cpu::fast
