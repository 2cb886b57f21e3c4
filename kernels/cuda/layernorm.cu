// Layer normalisation.
//
//   1  a block per row, which is read three times: for the mean, for the variance and for the
//      result. Any length. Backward also uses a block per row for dx, and folds over columns
//      for dweight and dbias
//   2  a warp (up to 1024 floats) or a block (up to 4096) per row, which is kept in registers, so
//      that memory is read and written once. Backward sums its share of dweight and dbias in
//      registers while it loops over rows. The blocks write their shares as rows of a small
//      matrix, and a fold sums its columns. The number of blocks, and therefore the bits, depends
//      only on the shape
//
// If kAdds, the forward kernel first adds the residual, and the backward kernel finally adds the
// gradient of the sum's other uses. In version 2, the two kernels together read or write eight
// arrays; separate kernels would access eleven.
#include "kernels/cuda/elementwise_math.cuh"
#include "kernels/cuda/fold.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/layernorm.hpp"

namespace ringsmith::kernels::cuda {

namespace {

// An absent weight means ones, an absent bias zeros.
template <class T>
struct Affine {
  const T *weight, *bias;
  __device__ T scale(T x, std::int64_t i) const { return weight != nullptr ? x * weight[i] : x; }
  __device__ T shift(T x, std::int64_t i) const { return bias != nullptr ? x + bias[i] : x; }
};

constexpr int kWarpPacks = 8;  // per lane of a warp (kRowPacks in a block)

template <class T, int kTeam>
using Share = RowShare<T, kTeam, kTeam == kWarp ? kWarpPacks : kRowPacks>;
template <class T>
constexpr std::int64_t kWarpRow = team_capacity<T>(kWarp, kWarpPacks);
template <class T>
constexpr std::int64_t kBlockRow = team_capacity<T>(kThreads);

template <class T>
struct Forward {
  const T *x, *residual;  // residual and sum are used only if kAdds
  T* sum;
  Affine<T> affine;
  T eps, *y, *mean, *rstd;
  std::int64_t rows, n;
  bool packs;
};

template <bool kAdds, class T>
__global__ void forward_any(Forward<T> p) {  // version 1
  const auto count = static_cast<T>(p.n);
  for (std::int64_t r = blockIdx.x; r < p.rows; r += gridDim.x) {
    const T* const row = (kAdds ? p.sum : p.x) + r * p.n;
    T sum = 0, squares = 0;
    // No barrier is needed: a thread reads only those elements of p.sum that it writes here.
    for (std::int64_t i = threadIdx.x; i < p.n; i += kThreads) {
      if constexpr (kAdds) p.sum[r * p.n + i] = p.x[r * p.n + i] + p.residual[r * p.n + i];
      sum += row[i];
    }
    const T mean = block_reduce<kThreads>(sum, Plus{}) / count;
    for (std::int64_t i = threadIdx.x; i < p.n; i += kThreads)
      squares += (row[i] - mean) * (row[i] - mean);
    const T rstd = 1 / sqrt_of(block_reduce<kThreads>(squares, Plus{}) / count + p.eps);
    for (std::int64_t i = threadIdx.x; i < p.n; i += kThreads)
      p.y[r * p.n + i] = p.affine.shift(p.affine.scale((row[i] - mean) * rstd, i), i);
    if (threadIdx.x == 0) {
      p.mean[r] = mean;
      p.rstd[r] = rstd;
    }
  }
}

template <bool kAdds, int kTeam, class T>
__global__ void __launch_bounds__(kThreads) forward_rows(Forward<T> p) {  // version 2
  const auto count = static_cast<T>(p.n);
  each_row<kTeam>(p.rows, [&](std::int64_t r, int lane) {
    Share<T, kTeam> row{};
    row.load(p.x + r * p.n, p.n, lane, p.packs);
    if constexpr (kAdds) {
      Share<T, kTeam> residual{};
      residual.load(p.residual + r * p.n, p.n, lane, p.packs);
      row.with(
          p.n, lane, [](T& x, T& added) { x = x + added; }, residual);
      row.store(p.sum + r * p.n, p.n, lane, p.packs);
    }
    const T mean = row.sum(p.n, lane, [](T x, std::int64_t) { return x; }) / count;
    const T variance =
        row.sum(p.n, lane, [=](T x, std::int64_t) { return (x - mean) * (x - mean); }) / count;
    const T rstd = 1 / sqrt_of(variance + p.eps);
    row.each(p.n, lane, [&](T& x, std::int64_t i) {
      x = p.affine.shift(p.affine.scale((x - mean) * rstd, i), i);
    });
    row.store(p.y + r * p.n, p.n, lane, p.packs);
    if (lane == 0) {
      p.mean[r] = mean;
      p.rstd[r] = rstd;
    }
  });
}

template <bool kAdds, class T>
void forward(const Forward<T>& p) {
  if (p.rows == 0) return;
  if (p.n <= kWarpRow<T>)
    launch_over(forward_rows<kAdds, kWarp, T>, p.rows, kThreads / kWarp, p);
  else if (p.n <= kBlockRow<T>)
    launch_over(forward_rows<kAdds, kThreads, T>, p.rows, 1, p);
  else
    launch_over(forward_any<kAdds, T>, p.rows, 1, p);
}

template <class T>
struct Backward {
  const T *dy, *dsum, *x;  // dsum: only if kAdds
  Affine<T> affine;
  const T *mean, *rstd;
  T *dx, *partials;  // (blocks, 2, n): dweight and dbias. dx or partials may be null
  std::int64_t rows, n;
  bool packs;
};

template <bool kAdds, class T>
__global__ void backward_any(Backward<T> p) {  // version 1, dx only
  const auto count = static_cast<T>(p.n);
  for (std::int64_t r = blockIdx.x; r < p.rows; r += gridDim.x) {
    const T *const row = p.x + r * p.n, *const dy = p.dy + r * p.n;
    const T mean = p.mean[r], rstd = p.rstd[r];
    T sum = 0, dot = 0;
    for (std::int64_t i = threadIdx.x; i < p.n; i += kThreads) {
      const T g = p.affine.scale(dy[i], i);
      sum += g;
      dot += g * ((row[i] - mean) * rstd);
    }
    sum = block_reduce<kThreads>(sum, Plus{}) / count;
    dot = block_reduce<kThreads>(dot, Plus{}) / count;
    for (std::int64_t i = threadIdx.x; i < p.n; i += kThreads) {
      T dx = (p.affine.scale(dy[i], i) - sum - (row[i] - mean) * rstd * dot) * rstd;
      if constexpr (kAdds) dx = dx + p.dsum[r * p.n + i];
      p.dx[r * p.n + i] = dx;
    }
  }
}

template <bool kAdds, int kTeam, class T>
__global__ void __launch_bounds__(kThreads) backward_rows(Backward<T> p) {  // version 2
  __shared__ T total[2][kTeam == kWarp ? kWarpRow<T> : kBlockRow<T>];
  const auto count = static_cast<T>(p.n);
  Share<T, kTeam> dweight{}, dbias{};
  each_row<kTeam>(p.rows, [&](std::int64_t r, int lane) {
    Share<T, kTeam> dy{}, x{};
    dy.load(p.dy + r * p.n, p.n, lane, p.packs);
    x.load(p.x + r * p.n, p.n, lane, p.packs);
    const T mean = p.mean[r], rstd = p.rstd[r];
    x.with(p.n, lane, [=](T& xhat) { xhat = (xhat - mean) * rstd; });
    dbias.with(
        p.n, lane, [](T& to, T& g) { to += g; }, dy);
    dweight.with(
        p.n, lane, [](T& to, T& g, T& xhat) { to += g * xhat; }, dy, x);
    if (p.dx == nullptr) return;
    dy.each(p.n, lane, [&](T& g, std::int64_t i) { g = p.affine.scale(g, i); });
    T sum = 0, dot = 0;
    dy.with(
        p.n, lane,
        [&](T& g, T& xhat) {
          sum += g;
          dot += g * xhat;
        },
        x);
    sum = team_reduce<kTeam>(sum, Plus{}) / count;
    dot = team_reduce<kTeam>(dot, Plus{}) / count;
    dy.with(
        p.n, lane, [=](T& g, T& xhat) { g = (g - sum - xhat * dot) * rstd; }, x);
    if constexpr (kAdds) {
      x.load(p.dsum + r * p.n, p.n, lane, p.packs);
      dy.with(
          p.n, lane, [](T& g, T& added) { g = g + added; }, x);
    }
    dy.store(p.dx + r * p.n, p.n, lane, p.packs);
  });
  if (p.partials == nullptr) return;
  // The teams of the block add one after another.
  const int lane = static_cast<int>(threadIdx.x) % kTeam;
  for (int team = 0; team < kThreads / kTeam; ++team) {
    if (static_cast<int>(threadIdx.x) / kTeam == team) {
      const auto add = [team](T& to, T value) { to = team == 0 ? value : to + value; };
      dweight.each(p.n, lane, [&](T& v, std::int64_t i) { add(total[0][i], v); });
      dbias.each(p.n, lane, [&](T& v, std::int64_t i) { add(total[1][i], v); });
    }
    __syncthreads();
  }
  for (std::int64_t i = threadIdx.x; i < 2 * p.n; i += kThreads)
    p.partials[std::int64_t{blockIdx.x} * 2 * p.n + i] = total[i / p.n][i % p.n];
}

// Folds n columns of `rows` rows, which are `stride` apart.
template <class Fold>
void fold_column_sums(const Fold& fold, std::int64_t rows, std::int64_t n, std::int64_t stride) {
  fold_nest(fold, one_run<2>(n, {1, 1}), one_run<1>(rows, {stride}), false);
}

// dweight as a fold over (rows, n), for version 1.
template <class T>
struct WeightGradient : Sums<T> {
  static constexpr bool kPacks = false;
  const T *dy, *x, *mean, *rstd;
  T* out;
  __device__ T term(std::int64_t at, std::int64_t row) const {
    return dy[at] * ((x[at] - mean[row]) * rstd[row]);
  }
  template <class At>
  __device__ void finish(const At& at, T value) const {
    out[at[0]] = value;
  }
};

template <class T>
T* or_null(std::span<T> s) {
  return s.empty() ? nullptr : s.data();
}

// If a team is a warp, a block has eight teams. Each of them gets fewer rows, because otherwise
// 8192 rows would not fill a device.
constexpr std::int64_t kRowsPerWarp = 4, kRowsPerBlock = 16, kMostBlocks = 1024;

template <bool kAdds, class T>
void backward(Backward<T> p, T* dweight, T* dbias) {
  if (p.n > kBlockRow<T>) {
    if (p.dx != nullptr && p.rows > 0) launch_over(backward_any<kAdds, T>, p.rows, 1, p);
    if (dweight != nullptr)
      fold_column_sums(WeightGradient<T>{{}, p.dy, p.x, p.mean, p.rstd, dweight}, p.rows, p.n, p.n);
    if (dbias != nullptr) fold_column_sums(SumInto<T>{{}, p.dy, dbias, false}, p.rows, p.n, p.n);
    return;
  }
  const bool warps = p.n <= kWarpRow<T>;
  const std::int64_t rows_per_block = warps ? kThreads / kWarp * kRowsPerWarp : kRowsPerBlock;
  const std::int64_t blocks =
      std::clamp<std::int64_t>(ceil_div(p.rows, rows_per_block), 0, kMostBlocks);
  const bool vectors = dweight != nullptr || dbias != nullptr;
  const Scratch<T> partials(vectors ? blocks * 2 * p.n : 0);
  p.partials = vectors ? partials.data() : nullptr;
  if (blocks > 0)
    launch(warps ? backward_rows<kAdds, kWarp, T> : backward_rows<kAdds, kThreads, T>,
           dim3(static_cast<unsigned>(blocks)), kThreads, 0, stream(), p);
  if (dweight != nullptr)
    fold_column_sums(SumInto<T>{{}, partials.data(), dweight, false}, blocks, p.n, 2 * p.n);
  if (dbias != nullptr)
    fold_column_sums(SumInto<T>{{}, partials.data() + p.n, dbias, false}, blocks, p.n, 2 * p.n);
}

template <class T>
std::int64_t row_length(std::span<const T> x, std::span<const T> rows) {
  return rows.empty() ? 0 : std::ssize(x) / std::ssize(rows);
}

// If there are no rows, the length of dweight or dbias.
template <class T>
std::int64_t row_length(std::span<const T> x, std::span<const T> rows, std::span<const T> dweight,
                        std::span<const T> dbias) {
  return std::max({std::ssize(dweight), std::ssize(dbias), row_length(x, rows)});
}

}  // namespace

template <class T>
void layer_norm(std::span<const T> x, std::span<const T> weight, std::span<const T> bias,
                double eps, std::span<T> y, std::span<T> mean, std::span<T> rstd) {
  const std::int64_t n = row_length<T>(x, mean);
  forward<false, T>({x.data(),
                     nullptr,
                     nullptr,
                     {or_null(weight), or_null(bias)},
                     static_cast<T>(eps),
                     y.data(),
                     mean.data(),
                     rstd.data(),
                     std::ssize(mean),
                     n,
                     n % kPack<T> == 0 && aligned(x.data(), y.data())});
}

template <class T>
void add_layer_norm(std::span<const T> x, std::span<const T> residual, std::span<const T> weight,
                    std::span<const T> bias, double eps, std::span<T> sum, std::span<T> y,
                    std::span<T> mean, std::span<T> rstd) {
  const std::int64_t n = row_length<T>(x, mean);
  forward<true, T>({x.data(),
                    residual.data(),
                    sum.data(),
                    {or_null(weight), or_null(bias)},
                    static_cast<T>(eps),
                    y.data(),
                    mean.data(),
                    rstd.data(),
                    std::ssize(mean),
                    n,
                    n % kPack<T> == 0 && aligned(x.data(), residual.data(), sum.data(), y.data())});
}

template <class T>
void layer_norm_backward(std::span<const T> dy, std::span<const T> x, std::span<const T> weight,
                         std::span<const T> mean, std::span<const T> rstd, std::span<T> dx,
                         std::span<T> dweight, std::span<T> dbias) {
  const std::int64_t n = row_length<T>(x, mean, dweight, dbias);
  backward<false, T>({dy.data(),
                      nullptr,
                      x.data(),
                      {or_null(weight), nullptr},
                      mean.data(),
                      rstd.data(),
                      or_null(dx),
                      nullptr,
                      std::ssize(mean),
                      n,
                      n % kPack<T> == 0 && aligned(dy.data(), x.data(), dx.data())},
                     or_null(dweight), or_null(dbias));
}

template <class T>
void add_layer_norm_backward(std::span<const T> dy, std::span<const T> dsum, std::span<const T> sum,
                             std::span<const T> weight, std::span<const T> mean,
                             std::span<const T> rstd, std::span<T> dx, std::span<T> dweight,
                             std::span<T> dbias) {
  const std::int64_t n = row_length<T>(sum, mean, dweight, dbias);
  backward<true, T>({dy.data(),
                     dsum.data(),
                     sum.data(),
                     {or_null(weight), nullptr},
                     mean.data(),
                     rstd.data(),
                     or_null(dx),
                     nullptr,
                     std::ssize(mean),
                     n,
                     n % kPack<T> == 0 && aligned(dy.data(), dsum.data(), sum.data(), dx.data())},
                    or_null(dweight), or_null(dbias));
}

RINGSMITH_FLOAT_AND_DOUBLE(layer_norm)
RINGSMITH_FLOAT_AND_DOUBLE(layer_norm_backward)
RINGSMITH_FLOAT_AND_DOUBLE(add_layer_norm)
RINGSMITH_FLOAT_AND_DOUBLE(add_layer_norm_backward)

}  // namespace ringsmith::kernels::cuda
