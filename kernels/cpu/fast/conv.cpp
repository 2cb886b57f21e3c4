// Convolution as matrix products whose second factor is never stored as a whole:
//
//   columns (taps x out pixels): row (c, kh, kw) holds, for every output pixel, the input pixel
//                                that this tap reads
//
// For a 3 x 3 kernel, the columns would take nine times the memory of the image. Here they are read
// from the image at the sum of two offsets, one for the tap and one for the output pixel. The image
// is copied into a frame of zeros, so that this also works at the border.
//
//   y    = weight (out_c x taps) columns + bias       columns read in place if neighbouring outputs
//                                                     read neighbouring pixels for a vector or
//                                                     more, else packed one panel at a time
//   dx   = a convolution of dy with the reversed kernel, output channels as input channels; with a
//          stride, one for each of the stride_h x stride_w classes of input pixels, each with the
//          taps that reach it
//   dw^T = columns dy^T                               columns read in place, dy^T packed
//
// All samples form one product. Deep layers have more weights than pixels, and a product per sample
// would read all weights each time.
//
// Every element is one chain of fused multiply-adds: y over ascending (c, kh, kw), starting from
// the bias; dx over ascending (output channel, kh, kw) of the reversed kernel; dw over ascending
// (sample, pixel). The bits are the same for any number of threads and any vector width.
#include "kernels/conv.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/cpu/fast/gemm_tile.hpp"
#include "kernels/cpu/fast/transpose.hpp"
#include "kernels/parallel.hpp"

namespace ringsmith::kernels::cpu::fast {

namespace {

// The number of terms that a tile adds in one pass: for dw, kPixels pixels; for y and dx, as many
// taps as keep the weights of all rows and the panel of B in L2.
constexpr std::int64_t kPixels = 512;
constexpr std::int64_t kWeights = 3 << 15, kLeastTaps = 384, kMostTaps = 1024;
constexpr std::int64_t taps_at_once(std::int64_t taps, std::int64_t rows) {
  const std::int64_t most = std::clamp(kWeights / rows, kLeastTaps, kMostTaps),
                     passes = (taps + most - 1) / most;
  return (taps + passes - 1) / passes;
}
constexpr std::int64_t kBlockColumns = 256;     // columns that are processed before the next taps
constexpr std::int64_t kFrameFloats = 1 << 20;  // limit on images framed together for dw, in floats

using Offsets = std::vector<std::int64_t>;

// A tile of C as in gemm_tile.hpp, with an image as one operand. at[k] is the offset of the element
// that step k reads. The other operand is stored in the order of k.
//
//   image as B   C[r][v] += A[r][k]     * B[v][at[k]]       y and dx
//   image as A   C[r][v] += A[r][at[k]] * B[v][k kWidth]    dw
struct ConvTile {
  std::array<const float*, kRows> a;
  std::array<const float*, kVectors> b;
  const std::int64_t* at;
  std::int64_t depth;
  std::array<float*, kVectors> c;
  std::int64_t c_row;
  const float* start;  // initial value of each row, or null to add to C
};
enum class ImageOf { kA, kB };

template <int R, int V, ImageOf kImage>
void run_conv_tile(const ConvTile& t) {
  Vec sum[R][V];
#pragma GCC unroll 6  // otherwise the compiler keeps the sums in memory
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      sum[r][v] = t.start != nullptr ? Vec{} + t.start[r]
                                     : load(t.c[static_cast<std::size_t>(v)] + r * t.c_row);
  const float* a[R];
  const float* b[V];
  for (int r = 0; r < R; ++r) a[r] = t.a[static_cast<std::size_t>(r)];
  for (int v = 0; v < V; ++v) b[v] = t.b[static_cast<std::size_t>(v)];
  const std::int64_t* const at = t.at;
  for (std::int64_t k = 0, depth = t.depth; k < depth; ++k) {
    const std::int64_t from_a = kImage == ImageOf::kA ? at[k] : k;
    Vec row[V];
    for (int v = 0; v < V; ++v)
      row[v] = kImage == ImageOf::kB ? load(b[v] + at[k]) : load(b[0] + k * kWidth + v * kLanes);
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v) sum[r][v] += a[r][from_a] * row[v];
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) store(t.c[static_cast<std::size_t>(v)] + r * t.c_row, sum[r][v]);
}

using ConvTileFn = void (*)(const ConvTile&);
template <ImageOf kImage, std::size_t... R>
constexpr std::array<ConvTileFn, sizeof...(R)> conv_tiles_of(std::index_sequence<R...>) {
  return {run_conv_tile<static_cast<int>(R) + 1, static_cast<int>(kVectors), kImage>...};
}
template <ImageOf kImage>
void run_tile_of(std::int64_t rows, const ConvTile& t) {
  static constexpr auto kTilesOf = conv_tiles_of<kImage>(std::make_index_sequence<kRows>{});
  kTilesOf[static_cast<std::size_t>(rows - 1)](t);
}

// Offsets of the rows of a packed panel.
constexpr auto kPacked = [] {
  std::array<std::int64_t, static_cast<std::size_t>(kMostTaps)> at{};
  for (std::size_t k = 0; k < at.size(); ++k) at[k] = static_cast<std::int64_t>(k) * kWidth;
  return at;
}();
constexpr std::array<float, static_cast<std::size_t>(kRows)> kZeros{};

struct Frame {
  std::int64_t planes;         // per image
  std::int64_t h, w;           // of a plane, without zeros
  std::int64_t top, left;      // zeros before the plane, or, if negative, rows or columns to skip
  std::int64_t rows, columns;  // with zeros
  [[nodiscard]] std::int64_t size() const { return planes * rows * columns; }
};

// Like std::copy_n, but inlined, because most rows of images are only a few vectors long.
void copy_row(const float* from, std::int64_t n, float* to) {
  constexpr std::int64_t kChunk = 8;
  if (n < kChunk) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[i];
    return;
  }
  for (std::int64_t i = 0; i < n; i += kChunk) {
    const std::int64_t at = std::min(i, n - kChunk);  // the last chunk overlaps the one before
    std::memcpy(to + at, from + at, kChunk * sizeof(float));
  }
}

// Fills out with n frames of f.size() floats, from images `stride` floats apart.
void put_in_frames(const Frame& f, const float* images, std::int64_t n, std::int64_t stride,
                   float* out) {
  const std::int64_t plane = f.rows * f.columns, first_row = std::max<std::int64_t>(0, f.top),
                     last_row = std::min(f.h + f.top, f.rows),
                     first = std::max<std::int64_t>(0, f.left),
                     last = std::min(f.w + f.left, f.columns);
  const bool whole = first_row == 0 && last_row == f.rows && first == 0 && last == f.columns;
  for (std::int64_t p = 0; p < n * f.planes; ++p, out += plane) {
    const float* from = images + p / f.planes * stride + p % f.planes * f.h * f.w;
    if (!whole) std::fill_n(out, plane, 0.0F);
    for (std::int64_t y = first_row; y < last_row; ++y)
      copy_row(from + (y - f.top) * f.w + first - f.left, last - first,
               out + y * f.columns + first);
  }
}

float* scratch(std::vector<float>& memory, std::int64_t floats) {
  if (std::ssize(memory) < floats) memory.resize(static_cast<std::size_t>(floats));
  return memory.data();
}

// out[n][r][p] = start[r] + sum over k of a[r][k] in[n][taps[k] + pixels[p]], with `in` framed.
struct ImageProduct {
  const float* a;          // (rows, taps)
  std::int64_t rows;       // of a and of out
  const float* start;      // rows floats, or null for zeros
  const float* in;         // the images, not yet framed
  std::int64_t in_stride;  // distance between samples
  Frame frame;
  bool bare;     // the images need no frame
  Offsets taps;  // offsets in an image's frame
  std::int64_t samples;
  Offsets pixels;  // offsets in an image's frame
  float* out;
  std::int64_t out_stride;  // distance between samples (rows are contiguous)
};

// kWidth consecutive columns of out, which has a column per (sample, pixel). The last panel may
// have fewer.
struct Panel {
  std::int64_t count = 0;
  std::array<std::int64_t, static_cast<std::size_t>(kWidth)> from{}, to{};  // 0 beyond count
  std::int64_t run = 1;         // `from` is contiguous in groups of this size, which divides kWidth
  bool writes_vectors = false;  // the panel is full, and `to` is contiguous within a vector
};

// The largest power of two, at most kWidth, such that all groups of that size are contiguous.
std::int64_t run_of(std::span<const std::int64_t> at) {
  std::int64_t run = kWidth;
  for (std::int64_t j = 1; j < std::ssize(at); ++j)
    while (j % run != 0 &&
           at[static_cast<std::size_t>(j)] != at[static_cast<std::size_t>(j - 1)] + 1)
      run /= 2;
  return run;
}

// frame_stride: elements from one sample to the next. Panel::from is relative to first_sample.
Panel make_panel(const ImageProduct& p, std::int64_t first, std::int64_t count,
                 std::int64_t first_sample, std::int64_t frame_stride) {
  const std::int64_t pixels = std::ssize(p.pixels);
  Panel panel;
  panel.count = count;
  std::int64_t sample = first / pixels, pixel = first % pixels;
  for (std::size_t j = 0; j < static_cast<std::size_t>(count); ++j) {
    panel.from[j] =
        (sample - first_sample) * frame_stride + p.pixels[static_cast<std::size_t>(pixel)];
    panel.to[j] = sample * p.out_stride + pixel;
    if (++pixel == pixels) ++sample, pixel = 0;
  }
  if (count < kWidth) return panel;
  panel.run = run_of(panel.from);
  panel.writes_vectors = run_of(panel.to) >= kLanes;
  return panel;
}

template <std::int64_t kRun>
void pack_runs(const float* in, const Panel& panel, const std::int64_t* taps, std::int64_t depth,
               float* out) {
  for (std::int64_t k = 0; k < depth; ++k, out += kWidth) {
    const float* tap = in + taps[k];
    for (std::int64_t j = 0; j < kWidth; j += kRun)
      std::memcpy(out + j, tap + panel.from[static_cast<std::size_t>(j)], kRun * sizeof(float));
  }
}
void pack(const float* in, const Panel& panel, const std::int64_t* taps, std::int64_t depth,
          float* out) {
  if (panel.run >= 8) return pack_runs<8>(in, panel, taps, depth, out);
  if (panel.run >= 4) return pack_runs<4>(in, panel, taps, depth, out);
  pack_runs<1>(in, panel, taps, depth, out);
}

// Adds the products of `depth` taps, starting at tap k, to a panel of out. If k is 0, the panel
// starts from p.start. Columns that form contiguous vectors are read in place; others are packed
// first.
void run_panel(const ImageProduct& p, const Panel& panel, const float* in, std::int64_t k,
               std::int64_t depth, float* packed) {
  const std::int64_t row = std::ssize(p.pixels), all = std::ssize(p.taps);
  const std::int64_t* taps = p.taps.data() + k;
  const bool packs = panel.run < kLanes;
  if (packs) pack(in, panel, taps, depth, packed);
  std::array<float, static_cast<std::size_t>(kRows * kWidth)> aside;
  ConvTile tile{{}, {}, packs ? kPacked.data() : taps, depth, {}, kWidth, nullptr};
  for (std::size_t v = 0; v < static_cast<std::size_t>(kVectors); ++v) {
    const std::size_t j = v * static_cast<std::size_t>(kLanes);
    tile.b[v] = packs ? packed + j : in + panel.from[j];
    tile.c[v] = aside.data() + j;
  }
  for (std::int64_t r = 0; r < p.rows; r += kRows) {
    const std::int64_t rows = std::min(kRows, p.rows - r);
    for (std::int64_t i = 0; i < rows; ++i)
      tile.a[static_cast<std::size_t>(i)] = p.a + (r + i) * all + k;
    if (k == 0) tile.start = p.start != nullptr ? p.start + r : kZeros.data();
    if (panel.writes_vectors) {
      for (std::size_t v = 0; v < static_cast<std::size_t>(kVectors); ++v)
        tile.c[v] = p.out + r * row + panel.to[v * static_cast<std::size_t>(kLanes)];
      tile.c_row = row;
      run_tile_of<ImageOf::kB>(rows, tile);
      continue;
    }
    const auto each = [&](const auto& move) {
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < panel.count; ++j)
          move(aside[static_cast<std::size_t>(i * kWidth + j)],
               p.out[(r + i) * row + panel.to[static_cast<std::size_t>(j)]]);
    };
    if (k > 0) each([](float& tile_c, const float& c) { tile_c = c; });
    run_tile_of<ImageOf::kB>(rows, tile);
    each([](const float& tile_c, float& c) { c = tile_c; });
  }
}

// Computes the (sample, pixel) columns [begin, end) of out, where begin is a multiple of kWidth.
void run_columns(const ImageProduct& p, std::int64_t begin, std::int64_t end) {
  const std::int64_t depth = std::ssize(p.taps), pixels = std::ssize(p.pixels);
  thread_local std::vector<float> frame_memory;
  thread_local std::vector<float> packed_memory;
  const std::int64_t at_once = taps_at_once(depth, p.rows);
  float* const packed = scratch(packed_memory, at_once * kWidth);
  std::vector<Panel> panels;
  std::int64_t framed_from = 0, framed_to = 0;  // samples in frame_memory
  for (std::int64_t block = begin; block < end; block += kBlockColumns) {
    const std::int64_t last = std::min(end, block + kBlockColumns), first_sample = block / pixels,
                       samples_to = (last - 1) / pixels + 1;
    const float* in = p.in + first_sample * p.in_stride;
    if (!p.bare) {
      float* frames = scratch(frame_memory, (samples_to - first_sample) * p.frame.size());
      if (first_sample != framed_from || samples_to != framed_to)
        put_in_frames(p.frame, in, samples_to - first_sample, p.in_stride, frames);
      framed_from = first_sample;
      framed_to = samples_to;
      in = frames;
    }
    panels.clear();
    for (std::int64_t j = block; j < last; j += kWidth)
      panels.push_back(make_panel(p, j, std::min(kWidth, last - j), first_sample,
                                  p.bare ? p.in_stride : p.frame.size()));
    for (std::int64_t k = 0; k < depth; k += at_once)
      for (const Panel& panel : panels)
        run_panel(p, panel, in, k, std::min(at_once, depth - k), packed);
  }
}

constexpr std::int64_t kThreadWork = 1 << 21;  // multiply-adds that justify another thread

void run(const ImageProduct& p) {
  const std::int64_t columns = p.samples * std::ssize(p.pixels), depth = std::ssize(p.taps);
  const std::int64_t panels = (columns + kWidth - 1) / kWidth;
  const std::int64_t grain = kThreadWork / std::max<std::int64_t>(1, p.rows * depth * kWidth) + 1;
  parallel_for(panels, grain, [&](std::int64_t begin, std::int64_t end) {
    run_columns(p, begin * kWidth, std::min(columns, end * kWidth));
  });
}

// Positions of a convolution's windows in the framed image.
struct Windows {
  Frame frame;
  Offsets taps;    // (c, kh, kw)
  Offsets pixels;  // of the outputs
};
Windows windows_of(const Conv2dShape& s) {
  const std::int64_t rows = (s.out_h() - 1) * s.stride_h + (s.kh - 1) * s.dilation_h + 1,
                     columns = (s.out_w() - 1) * s.stride_w + (s.kw - 1) * s.dilation_w + 1;
  Windows out{{s.group_c(), s.h, s.w, s.pad_h, s.pad_w, rows, columns}, {}, {}};
  for (std::int64_t c = 0; c < s.group_c(); ++c)
    for (std::int64_t kh = 0; kh < s.kh; ++kh)
      for (std::int64_t kw = 0; kw < s.kw; ++kw)
        out.taps.push_back((c * rows + kh * s.dilation_h) * columns + kw * s.dilation_w);
  for (std::int64_t i = 0; i < s.out_h(); ++i)
    for (std::int64_t j = 0; j < s.out_w(); ++j)
      out.pixels.push_back(i * s.stride_h * columns + j * s.stride_w);
  return out;
}

// The input pixels of one class in one dimension, i.e. those with (pixel + pad) mod stride ==
// phase, and the taps that reach them. Pixel m of the class is pixel first + m stride of the image.
// Each tap links it to output m + shift.
struct Phase {
  std::int64_t first = 0, count = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> taps;  // (tap, shift), ascending in shift
};
Phase phase_of(std::int64_t phase, std::int64_t size, std::int64_t stride, std::int64_t pad,
               std::int64_t kernel, std::int64_t dilation) {
  Phase out;
  out.first = ((phase - pad) % stride + stride) % stride;
  out.count = out.first < size ? (size - out.first + stride - 1) / stride : 0;
  for (std::int64_t k = kernel - 1; k >= 0; --k) {  // output o reads o stride - pad + k dilation
    const std::int64_t far = out.first + pad - k * dilation;
    if (far % stride == 0) out.taps.emplace_back(k, far / stride);
  }
  return out;
}

}  // namespace

void conv2d(const Conv2dShape& s, std::span<const float> x, std::span<const float> weight,
            std::span<const float> bias, std::span<float> y) {
  if (y.empty()) return;
  const Windows windows = windows_of(s);
  const Frame& frame = windows.frame;
  for (std::int64_t g = 0; g < s.groups; ++g)
    run({.a = weight.data() + g * s.group_out_c() * s.taps(),
         .rows = s.group_out_c(),
         .start = bias.empty() ? nullptr : bias.data() + g * s.group_out_c(),
         .in = x.data() + g * s.group_c() * s.h * s.w,
         .in_stride = s.c * s.h * s.w,
         .frame = frame,
         .bare = s.pad_h == 0 && s.pad_w == 0 && frame.rows == s.h && frame.columns == s.w,
         .taps = windows.taps,
         .samples = s.n,
         .pixels = windows.pixels,
         .out = y.data() + g * s.group_out_c() * s.out_pixels(),
         .out_stride = s.out_c * s.out_pixels()});
}

namespace {

// Computes dx for the pixels of one class as (samples, channels of the group, pixels of the class),
// then copies them into place.
void grad_of_class(const Conv2dShape& s, const float* dy, const float* weight, const Phase& rows,
                   const Phase& columns, float* dx) {
  const std::int64_t channels = s.group_c(), out_channels = s.group_out_c(),
                     taps = std::ssize(rows.taps) * std::ssize(columns.taps),
                     pixels = rows.count * columns.count;
  const bool whole = s.stride_h == 1 && s.stride_w == 1;  // the only class is the whole image
  thread_local std::vector<float> class_memory, turned_memory;
  float* out = whole ? dx : scratch(class_memory, s.n * channels * pixels);
  if (taps == 0) {  // pixels that no window reads
    std::fill_n(out, s.n * channels * pixels, 0.0F);
  } else {
    const std::int64_t up = rows.taps.front().second, left = columns.taps.front().second;
    const Frame frame{out_channels,
                      s.out_h(),
                      s.out_w(),
                      -up,
                      -left,
                      rows.count + rows.taps.back().second - up,
                      columns.count + columns.taps.back().second - left};
    ImageProduct p{.a = nullptr,
                   .rows = channels,
                   .start = nullptr,
                   .in = dy,
                   .in_stride = s.out_c * s.out_pixels(),
                   .frame = frame,
                   .bare = false,
                   .taps = {},
                   .samples = s.n,
                   .pixels = {},
                   .out = out,
                   .out_stride = whole ? s.c * s.h * s.w : channels * pixels};
    float* turned = scratch(turned_memory, channels * out_channels * taps);  // (c, o, tap)
    Offsets of_kernel;  // offsets of the class's taps in a kernel
    for (const auto& [kh, row] : rows.taps)
      for (const auto& [kw, column] : columns.taps) of_kernel.push_back(kh * s.kw + kw);
    for (std::int64_t o = 0; o < out_channels; ++o)
      for (const auto& [kh, row] : rows.taps)
        for (const auto& [kw, column] : columns.taps)
          p.taps.push_back((o * frame.rows + row - up) * frame.columns + column - left);
    const auto turn = [&](const float* kernel, float* to) {
      constexpr std::int64_t kUsual = 9;  // taps of a 3 x 3 kernel: a loop of constant length
      if (whole && taps == kUsual)
        for (std::int64_t t = 0; t < kUsual; ++t) to[t] = kernel[kUsual - 1 - t];
      else
        for (const std::int64_t tap : of_kernel) *to++ = kernel[tap];
    };
    constexpr std::int64_t kStreams = 8;  // rows that are written in turn, few enough for the cache
    for (std::int64_t block = 0; block < channels; block += kStreams)
      for (std::int64_t o = 0; o < out_channels; ++o)
        for (std::int64_t c = block; c < std::min(channels, block + kStreams); ++c)
          turn(weight + (o * channels + c) * s.kh * s.kw, turned + (c * out_channels + o) * taps);
    for (std::int64_t i = 0; i < rows.count; ++i)
      for (std::int64_t j = 0; j < columns.count; ++j) p.pixels.push_back(i * frame.columns + j);
    p.a = turned;
    run(p);
  }
  if (whole) return;
  for (std::int64_t plane = 0; plane < s.n * channels; ++plane)
    for (std::int64_t i = 0; i < rows.count; ++i) {
      float* to =
          dx +
          ((plane / channels * s.c + plane % channels) * s.h + rows.first + i * s.stride_h) * s.w +
          columns.first;
      for (std::int64_t j = 0; j < columns.count; ++j) to[j * s.stride_w] = *out++;
    }
}

}  // namespace

void conv2d_grad_input(const Conv2dShape& s, std::span<const float> dy,
                       std::span<const float> weight, std::span<float> dx) {
  if (dy.empty()) std::fill(dx.begin(), dx.end(), 0.0F);
  if (dy.empty()) return;
  for (std::int64_t g = 0; g < s.groups; ++g)
    for (std::int64_t ph = 0; ph < s.stride_h; ++ph)
      for (std::int64_t pw = 0; pw < s.stride_w; ++pw) {
        const Phase rows = phase_of(ph, s.h, s.stride_h, s.pad_h, s.kh, s.dilation_h),
                    columns = phase_of(pw, s.w, s.stride_w, s.pad_w, s.kw, s.dilation_w);
        if (rows.count == 0 || columns.count == 0) continue;
        grad_of_class(s, dy.data() + g * s.group_out_c() * s.out_pixels(),
                      weight.data() + g * s.group_out_c() * s.taps(), rows, columns,
                      dx.data() + g * s.group_c() * s.h * s.w);
      }
}

void conv2d_grad_weight(const Conv2dShape& s, std::span<const float> dy, std::span<const float> x,
                        std::span<float> dw) {
  if (dy.empty()) std::fill(dw.begin(), dw.end(), 0.0F);
  if (dy.empty()) return;
  const Windows windows = windows_of(s);
  const Frame& frame = windows.frame;
  const std::int64_t taps = s.taps(), channels = s.group_out_c(), pixels = s.out_pixels();
  const std::int64_t panels = (channels + kWidth - 1) / kWidth;
  const std::int64_t together =  // number of samples
      std::clamp<std::int64_t>(kFrameFloats / std::max<std::int64_t>(1, frame.size()), 1, s.n);
  Offsets at;  // of the windows of `together` samples
  for (std::int64_t n = 0; n < together; ++n)
    for (const std::int64_t pixel : windows.pixels) at.push_back(n * frame.size() + pixel);
  thread_local std::vector<float> frame_memory, sum_memory;
  float* const frames = scratch(frame_memory, together * frame.size());
  float* const sums = scratch(sum_memory, panels * taps * kWidth);  // dw^T, panel by panel
  for (std::int64_t g = 0; g < s.groups; ++g) {
    for (std::int64_t sample = 0; sample < s.n; sample += together) {
      const std::int64_t samples = std::min(together, s.n - sample);
      put_in_frames(frame, x.data() + (sample * s.c + g * s.group_c()) * s.h * s.w, samples,
                    s.c * s.h * s.w, frames);
      parallel_for(panels, 1, [&](std::int64_t begin, std::int64_t end) {
        // dy^T for kPixels pixels, with zeros beyond the last channel.
        std::vector<float> b(static_cast<std::size_t>(kPixels * kWidth));
        for (std::int64_t panel = begin; panel < end; ++panel) {
          const std::int64_t first = g * channels + panel * kWidth,
                             width = std::min(kWidth, channels - panel * kWidth);
          if (width < kWidth) std::fill(b.begin(), b.end(), 0.0F);
          for (std::int64_t k = 0; k < samples * pixels; k += kPixels) {
            const std::int64_t depth = std::min(kPixels, samples * pixels - k);
            for (std::int64_t i = 0, count = 0; i < depth; i += count) {  // sample by sample
              const std::int64_t n = sample + (k + i) / pixels, pixel = (k + i) % pixels;
              count = std::min(depth - i, pixels - pixel);
              transpose(dy.data() + (n * s.out_c + first) * pixels + pixel, pixels, width, count,
                        b.data() + i * kWidth, kWidth);
            }
            ConvTile tile{{}, {b.data()}, at.data() + k, depth, {}, kWidth, nullptr};
            if (sample == 0 && k == 0) tile.start = kZeros.data();
            for (std::int64_t t = 0; t < taps; t += kRows) {
              const std::int64_t tile_rows = std::min(kRows, taps - t);
              for (std::int64_t i = 0; i < tile_rows; ++i)
                tile.a[static_cast<std::size_t>(i)] =
                    frames + windows.taps[static_cast<std::size_t>(t + i)];
              for (std::int64_t v = 0; v < kVectors; ++v)
                tile.c[static_cast<std::size_t>(v)] =
                    sums + (panel * taps + t) * kWidth + v * kLanes;
              run_tile_of<ImageOf::kA>(tile_rows, tile);
            }
          }
        }
      });
    }
    for (std::int64_t panel = 0; panel < panels; ++panel)
      transpose(sums + panel * taps * kWidth, kWidth, taps,
                std::min(kWidth, channels - panel * kWidth),
                dw.data() + (g * channels + panel * kWidth) * taps, taps);
  }
}

void conv2d_grad_bias(const Conv2dShape& s, std::span<const float> dy, std::span<float> db) {
  constexpr std::size_t kSums = 16;  // independent, so that the loop is vectorised
  const auto pixels = static_cast<std::size_t>(s.out_pixels());
  for (std::int64_t o = 0; o < s.out_c; ++o) {
    double lanes[kSums] = {};
    for (std::int64_t n = 0; n < s.n; ++n) {
      const float* grad = dy.data() + (n * s.out_c + o) * s.out_pixels();
      std::size_t p = 0;
      for (; p + kSums <= pixels; p += kSums)
        for (std::size_t l = 0; l < kSums; ++l) lanes[l] += grad[p + l];
      for (std::size_t l = 0; p < pixels; ++p, ++l) lanes[l] += grad[p];
    }
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    db[static_cast<std::size_t>(o)] = static_cast<float>(sum);
  }
}

}  // namespace ringsmith::kernels::cpu::fast
