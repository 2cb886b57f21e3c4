// Channels are spread over threads, and each channel has kSumLanes independent partial sums, so
// that the compiler can vectorise without reordering additions. y is (x - mean) * scale + bias.
//
// After a Linear layer a channel has one pixel: sums then run down the columns of an (n, c) matrix,
// and y is computed row by row.
#include "kernels/batchnorm.hpp"

#include <array>
#include <cstring>
#include <vector>

#include "kernels/parallel.hpp"

namespace ringsmith::kernels::cpu::fast {

namespace {

constexpr std::size_t kSumLanes = 16;

typedef double Lanes __attribute__((vector_size(kSumLanes * sizeof(double))));

// Sums each term over n elements in one pass. Lane l adds the elements l, l + kSumLanes, and so on.
// At the end, the lanes are added in order. A term receives a function that loads from an array: a
// vector of all lanes if the elements are contiguous, otherwise one number.
template <class... Terms>
std::array<double, sizeof...(Terms)> lane_sums(std::size_t base, std::size_t step, std::int64_t n,
                                               const Terms&... terms) {
  const auto count = static_cast<std::size_t>(n);
  std::array<Lanes, sizeof...(Terms)> lanes{};
  std::size_t i = 0;
  for (; step == 1 && i + kSumLanes <= count; i += kSumLanes) {
    const auto load = [&]<class T>(const T* from) {
      typedef T Loaded __attribute__((vector_size(kSumLanes * sizeof(T))));
      Loaded loaded;
      std::memcpy(&loaded, from + base + i, sizeof loaded);
      return __builtin_convertvector(loaded, Lanes);
    };
    std::size_t t = 0;
    ((lanes[t++] += terms(load)), ...);
  }
  std::array<std::array<double, kSumLanes>, sizeof...(Terms)> rest;
  std::memcpy(&rest, &lanes, sizeof rest);
  for (std::size_t l = 0; i < count; ++i, l = (l + 1) % kSumLanes) {
    const auto load = [&](const auto* from) { return static_cast<double>(from[base + i * step]); };
    std::size_t t = 0;
    ((rest[t++][l] += terms(load)), ...);
  }
  std::array<double, sizeof...(Terms)> sums{};
  for (std::size_t t = 0; t < sums.size(); ++t)
    for (const double lane : rest[t]) sums[t] += lane;
  return sums;
}

template <class... Terms>
std::array<double, sizeof...(Terms)> channel_sums(const BatchNormShape& s, std::int64_t c,
                                                  const Terms&... terms) {
  const auto at = static_cast<std::size_t>(c), channels = static_cast<std::size_t>(s.c);
  if (s.pixels == 1) return lane_sums(at, channels, s.n, terms...);
  std::array<double, sizeof...(Terms)> sums{};
  for (std::size_t n = 0; n < static_cast<std::size_t>(s.n); ++n) {
    const auto of_plane =
        lane_sums((n * channels + at) * static_cast<std::size_t>(s.pixels), 1, s.pixels, terms...);
    for (std::size_t t = 0; t < sums.size(); ++t) sums[t] += of_plane[t];
  }
  return sums;
}

template <class T, class F>
void map(const BatchNormShape& s, T* out, const F& f) {
  const auto pixels = static_cast<std::size_t>(s.pixels), channels = static_cast<std::size_t>(s.c);
  if (s.pixels == 1) {
    parallel_for(s.n, grain_of(s.c), [&](std::int64_t first, std::int64_t last) {
      for (auto n = static_cast<std::size_t>(first); n < static_cast<std::size_t>(last); ++n)
        for (std::size_t c = 0; c < channels; ++c) out[n * channels + c] = f(n * channels + c, c);
    });
    return;
  }
  parallel_for(s.n * s.c, grain_of(s.pixels), [&](std::int64_t first, std::int64_t last) {
    for (auto plane = static_cast<std::size_t>(first); plane < static_cast<std::size_t>(last);
         ++plane)
      for (std::size_t p = 0; p < pixels; ++p)
        out[plane * pixels + p] = f(plane * pixels + p, plane % channels);
  });
}

}  // namespace

template <class T>
void batch_stats(const BatchNormShape& s, std::span<const T> x, std::span<T> mean,
                 std::span<T> squares) {
  const auto count = static_cast<double>(s.per_channel());
  const T* v = x.data();
  parallel_for(s.c, grain_of(s.per_channel()), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t c = first; c < last; ++c) {
      const auto [sum] = channel_sums(s, c, [&](const auto& load) { return load(v); });
      const double m = sum / count;
      const auto [sum_of_squares] = channel_sums(s, c, [&](const auto& load) {
        const auto off = load(v) - m;
        return off * off;
      });
      mean[static_cast<std::size_t>(c)] = static_cast<T>(m);
      squares[static_cast<std::size_t>(c)] = static_cast<T>(sum_of_squares);
    }
  });
}

template <class T>
void batch_norm(const BatchNormShape& s, std::span<const T> x, std::span<const T> mean,
                std::span<const T> inv_std, std::span<const T> weight, std::span<const T> bias,
                std::span<T> y) {
  std::vector<T> scale(weight.size());
  for (std::size_t c = 0; c < scale.size(); ++c) scale[c] = inv_std[c] * weight[c];
  map(s, y.data(),
      [v = x.data(), m = mean.data(), k = scale.data(), b = bias.data()](
          std::size_t i, std::size_t c) { return (v[i] - m[c]) * k[c] + b[c]; });
}

template <class T>
void batch_norm_grad(const BatchNormShape& s, std::span<const T> dy, std::span<const T> x,
                     std::span<const T> mean, std::span<const T> inv_std, std::span<const T> weight,
                     bool batch_statistics, std::span<T> dx, std::span<T> dweight,
                     std::span<T> dbias) {
  const auto count = static_cast<double>(s.per_channel());
  const T* g = dy.data();
  const T* v = x.data();
  const auto channels = static_cast<std::size_t>(s.c);
  // dx = scale * (dy - offset - (x - mean) * slope)
  std::vector<T> scale(channels), offset(channels), slope(channels);
  parallel_for(s.c, grain_of(s.per_channel()), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t ch = first; ch < last; ++ch) {
      const auto c = static_cast<std::size_t>(ch);
      const double m = mean[c], r = inv_std[c];
      const auto [sum, product] = channel_sums(
          s, ch, [&](const auto& load) { return load(g); },
          [&](const auto& load) { return load(g) * (load(v) - m); });
      const double dot = product * r;
      dweight[c] = static_cast<T>(dot);
      dbias[c] = static_cast<T>(sum);
      scale[c] = inv_std[c] * weight[c];
      offset[c] = batch_statistics ? static_cast<T>(sum / count) : T(0);
      slope[c] = batch_statistics ? static_cast<T>(dot / count * r) : T(0);
    }
  });
  map(s, dx.data(),
      [g, v, m = mean.data(), k = scale.data(), o = offset.data(), d = slope.data()](
          std::size_t i, std::size_t c) { return k[c] * (g[i] - o[c] - (v[i] - m[c]) * d[c]); });
}

RINGSMITH_FLOAT_AND_DOUBLE(batch_stats)
RINGSMITH_FLOAT_AND_DOUBLE(batch_norm)
RINGSMITH_FLOAT_AND_DOUBLE(batch_norm_grad)

}  // namespace ringsmith::kernels::cpu::fast
