// Forward reads each row from memory once, and computes mean, variance and result while it is in
// L1. Backward computes a row's dx and its part of dweight and dbias while the row is in cache. The
// rows of a block add to one partial sum (a share) of dweight and dbias.
#include "kernels/layernorm.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "kernels/cpu/fast/rows.hpp"
#include "kernels/parallel.hpp"

namespace ringsmith::kernels::cpu::fast {

namespace {

constexpr std::int64_t kGrain = 8192;  // elements that justify another thread
constexpr std::int64_t kBlock = 64;    // rows that add to one share of the weight gradients

std::int64_t rows_per_thread(std::int64_t n) { return std::max<std::int64_t>(1, kGrain / (n + 1)); }

// If the mean is more than sqrt(kFarOff) standard deviations from 0, the rounding of the sum, which
// is relative to the mean, would show in the result.
constexpr float kFarOff = 1024;

// Normalises a row whose mean is far off. Differences between the elements and a first mean are
// exact, or nearly so, and the mean of the differences corrects the first mean. `rest` is the part
// of the correction that is lost when `mean` is rounded; backward reads only `mean`. The function
// is not inlined, so that it does not change the code of the loop for other rows.
[[gnu::noinline]] void far_off_row(const float* row, std::int64_t n, float eps, const float* w,
                                   const float* b, float* __restrict out, float& mean,
                                   float& rstd) {
  const float inverse = 1.0F / static_cast<float>(n);
  const float first = row_sum_of(n, [row](std::int64_t i) { return row[i]; }) * inverse;
  const float lacks =
      row_sum_of(n, [row, first](std::int64_t i) { return row[i] - first; }) * inverse;
  const float m = first + lacks, rest = lacks - (m - first);
  const auto off = [row, m, rest](std::int64_t i) { return (row[i] - m) - rest; };
  const float variance = row_sum_of(n, [off](std::int64_t i) { return off(i) * off(i); }) * inverse;
  const float s = 1.0F / std::sqrt(variance + eps);
  for (std::int64_t i = 0; i < n; ++i) out[i] = off(i) * s * w[i] + b[i];
  mean = m;
  rstd = s;
}

}  // namespace

void layer_norm(std::span<const float> x, std::span<const float> weight,
                std::span<const float> bias, double eps, std::span<float> y, std::span<float> mean,
                std::span<float> rstd) {
  if (mean.empty()) return;
  const auto rows = static_cast<std::int64_t>(mean.size());
  const std::int64_t n = static_cast<std::int64_t>(x.size()) / rows;
  const std::vector<float> ones(weight.empty() ? static_cast<std::size_t>(n) : 0, 1.0F);
  const std::vector<float> zeros(bias.empty() ? static_cast<std::size_t>(n) : 0, 0.0F);
  const float* w = weight.empty() ? ones.data() : weight.data();
  const float* b = bias.empty() ? zeros.data() : bias.data();
  const float inverse = 1.0F / static_cast<float>(n);
  parallel_for(rows, rows_per_thread(n), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* row = x.data() + r * n;
      float* __restrict out = y.data() + r * n;
      const float m = row_sum_of(n, [row](std::int64_t i) { return row[i]; }) * inverse;
      const float variance =
          row_sum_of(n, [row, m](std::int64_t i) { return (row[i] - m) * (row[i] - m); }) * inverse;
      if (m * m > kFarOff * variance) {
        far_off_row(row, n, static_cast<float>(eps), w, b, out, mean[static_cast<std::size_t>(r)],
                    rstd[static_cast<std::size_t>(r)]);
        continue;
      }
      const float s = 1.0F / std::sqrt(variance + static_cast<float>(eps));
      for (std::int64_t i = 0; i < n; ++i) out[i] = (row[i] - m) * s * w[i] + b[i];
      mean[static_cast<std::size_t>(r)] = m;
      rstd[static_cast<std::size_t>(r)] = s;
    }
  });
}

void layer_norm_backward(std::span<const float> dy, std::span<const float> x,
                         std::span<const float> weight, std::span<const float> mean,
                         std::span<const float> rstd, std::span<float> dx, std::span<float> dweight,
                         std::span<float> dbias) {
  std::fill(dweight.begin(), dweight.end(), 0.0F);
  std::fill(dbias.begin(), dbias.end(), 0.0F);
  if (mean.empty()) return;
  const auto rows = static_cast<std::int64_t>(mean.size());
  const std::int64_t n = static_cast<std::int64_t>(x.size()) / rows;
  const auto width = static_cast<std::size_t>(n);
  const std::vector<float> ones(weight.empty() ? width : 0, 1.0F);
  const float* w = weight.empty() ? ones.data() : weight.data();
  const float inverse = 1.0F / static_cast<float>(n);
  const std::int64_t blocks = (rows + kBlock - 1) / kBlock;
  std::vector<float> shares(static_cast<std::size_t>(2 * blocks * n));  // of dweight and dbias
  parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin * kBlock; r < std::min(rows, end * kBlock); ++r) {
      const float* g = dy.data() + r * n;
      const float* row = x.data() + r * n;
      const float m = mean[static_cast<std::size_t>(r)], s = rstd[static_cast<std::size_t>(r)];
      if (!dx.empty()) {
        float* __restrict out = dx.data() + r * n;
        const float sum = row_sum_of(n, [g, w](std::int64_t i) { return g[i] * w[i]; }) * inverse;
        const float dot =
            row_sum_of(n, [g, w, row, m](std::int64_t i) { return g[i] * w[i] * (row[i] - m); }) *
            (inverse * s);
        for (std::int64_t i = 0; i < n; ++i)
          out[i] = (g[i] * w[i] - sum - (row[i] - m) * (s * dot)) * s;
      }
      float* __restrict share_weight = shares.data() + r / kBlock * 2 * n;
      float* __restrict share_bias = share_weight + n;
      for (std::int64_t i = 0; i < n; ++i) {
        share_weight[i] += g[i] * ((row[i] - m) * s);
        share_bias[i] += g[i];
      }
    }
  });
  // Adds the shares in order, so that the sums do not depend on the number of threads.
  for (std::int64_t block = 0; block < blocks; ++block) {
    const float* share = shares.data() + block * 2 * n;
    for (std::size_t i = 0; i < dweight.size(); ++i) dweight[i] += share[i];
    for (std::size_t i = 0; i < dbias.size(); ++i) dbias[i] += share[width + i];
  }
}

}  // namespace ringsmith::kernels::cpu::fast
