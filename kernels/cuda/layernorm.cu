// Layer normalisation.
//
//   1  a block per row, which is read three times: for the mean, for the variance and for the
//      result. Any length. Backward also uses a block per row for dx, and folds over columns
//      for dweight and dbias
//   2  a warp (up to 768 floats) or a block (up to 4096) per row, which is kept in registers, so
//      that memory is read and written once. Backward sums its share of dweight and dbias in
//      registers while it loops over rows. The blocks write their shares as rows of a small
//      matrix, and a fold sums its columns. The number of blocks, and therefore the bits, depends
//      only on the shape. Elements beyond the row are zeros, which change no sum: only the squares
//      of the variance need comparisons. On an H200 these kernels wait for memory if a warp has
//      few registers, and for their own instructions if each element is compared with the end
//
// If kAdds, the forward kernel first adds the residual, and the backward kernel finally adds the
// gradient of the sum's other uses. In version 2, the two kernels together read or write eight
// arrays; separate kernels would access eleven.
//
// In is the type of x, the sum and the parameters, and of their gradients. Out is the type of y and
// the residual, and of their gradients. The arithmetic is in T: double, or float, to which 16-bit
// elements are widened when they are loaded and from which they are rounded when they are stored.
#include "kernels/cuda/elementwise_math.cuh"
#include "kernels/cuda/fold.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/layernorm.hpp"

namespace ringsmith::kernels::cuda {

namespace {

// An absent weight means ones, an absent bias zeros.
template <class In>
struct Affine {
  using T = Wide<In>;
  const In *weight, *bias;
  __device__ T scale(T x, std::int64_t i) const {
    return weight != nullptr ? x * widened(weight[i]) : x;
  }
  __device__ T shift(T x, std::int64_t i) const {
    return bias != nullptr ? x + widened(bias[i]) : x;
  }
};

constexpr int kWarpPacks = 6;  // per lane, if a warp holds a row: 768 floats, as GPT-2 has

template <class In, class Out>
struct Forward {
  using T = Wide<In>;
  const In* x;
  const Out* residual;  // residual and sum are used only if kAdds
  In* sum;
  Affine<In> affine;
  T eps;
  Out* y;
  T *mean, *rstd;
  std::int64_t rows, n;
  bool packs;
};

template <bool kAdds, class In, class Out>
__global__ void forward_any(Forward<In, Out> p) {  // version 1
  using T = Wide<In>;
  const auto count = static_cast<T>(p.n);
  for (std::int64_t r = blockIdx.x; r < p.rows; r += gridDim.x) {
    const In* const row = (kAdds ? p.sum : p.x) + r * p.n;
    T sum = 0, squares = 0;
    // No barrier is needed: a thread reads only those elements of p.sum that it writes here.
    for (std::int64_t i = threadIdx.x; i < p.n; i += kThreads) {
      if constexpr (kAdds) p.sum[r * p.n + i] = p.x[r * p.n + i] + widened(p.residual[r * p.n + i]);
      sum += widened(row[i]);
    }
    const T mean = block_reduce<kThreads>(sum, Plus{}) / count;
    for (std::int64_t i = threadIdx.x; i < p.n; i += kThreads) {
      const T off = widened(row[i]) - mean;
      squares += off * off;
    }
    const T rstd = 1 / sqrt_of(block_reduce<kThreads>(squares, Plus{}) / count + p.eps);
    for (std::int64_t i = threadIdx.x; i < p.n; i += kThreads)
      p.y[r * p.n + i] =
          static_cast<Out>(p.affine.shift(p.affine.scale((widened(row[i]) - mean) * rstd, i), i));
    if (threadIdx.x == 0) {
      p.mean[r] = mean;
      p.rstd[r] = rstd;
    }
  }
}

template <bool kAdds, class Size, class In, class Out>
__global__ void __launch_bounds__(kThreads) forward_rows(Forward<In, Out> p) {  // version 2
  using T = Wide<In>;
  constexpr int kTeam = Size::kTeam;
  using Share = RowShare<T, kTeam, Size::kPacks>;
  const auto count = static_cast<T>(p.n);
  each_row<kTeam>(p.rows, [&](std::int64_t r, int lane) {
    Share row{};
    row.load(p.x + r * p.n, p.n, lane, p.packs);
    if constexpr (kAdds) {
      Share residual{};
      residual.load(p.residual + r * p.n, p.n, lane, p.packs);
      row.with([](T& x, T& added) { x = x + added; }, residual);
      row.store(p.sum + r * p.n, p.n, lane, p.packs);
    }
    T sum = 0, squares = 0;
    row.with([&](T& x) { sum += x; });
    const T mean = team_reduce<kTeam>(sum, Plus{}) / count;
    const auto add_square = [&](T& x, std::int64_t) { squares += (x - mean) * (x - mean); };
    if (p.packs)
      row.each_in_packs(p.n, lane, add_square);
    else
      row.each(p.n, lane, add_square);
    const T variance = team_reduce<kTeam>(squares, Plus{}) / count;
    const T rstd = 1 / sqrt_of(variance + p.eps);
    row.with([=](T& x) { x = (x - mean) * rstd; });
    if (p.affine.weight != nullptr) {
      Share weight{};
      weight.load(p.affine.weight, p.n, lane, p.packs);
      row.with([](T& x, T& w) { x = x * w; }, weight);
    }
    if (p.affine.bias != nullptr) {
      Share bias{};
      bias.load(p.affine.bias, p.n, lane, p.packs);
      row.with([](T& x, T& b) { x = x + b; }, bias);
    }
    row.store(p.y + r * p.n, p.n, lane, p.packs);
    if (lane == 0) {
      p.mean[r] = mean;
      p.rstd[r] = rstd;
    }
  });
}

template <bool kAdds, class In, class Out>
void forward(const Forward<In, Out>& p) {
  if (p.rows == 0) return;
  const bool held = with_team<Wide<In>, kWarpPacks>(p.n, [&]<class Size>(Size) {
    launch_over(forward_rows<kAdds, Size, In, Out>, p.rows, kThreads / Size::kTeam, p);
  });
  if (!held) launch_over(forward_any<kAdds, In, Out>, p.rows, 1, p);
}

template <class In, class Out>
struct Backward {
  using T = Wide<In>;
  const Out* dy;
  const In *dsum, *x;  // dsum: only if kAdds
  Affine<In> affine;
  const T *mean, *rstd;
  In* dx;
  Out* dresidual;  // dx once more, if kAdds and Out is another type. May be null
  T* partials;     // (blocks, 2, n): dweight and dbias. dx or partials may be null
  std::int64_t rows, n;
  bool packs;
};

template <bool kAdds, class In, class Out>
__global__ void backward_any(Backward<In, Out> p) {  // version 1, dx only
  using T = Wide<In>;
  const auto count = static_cast<T>(p.n);
  for (std::int64_t r = blockIdx.x; r < p.rows; r += gridDim.x) {
    const In* const row = p.x + r * p.n;
    const Out* const dy = p.dy + r * p.n;
    const T mean = p.mean[r], rstd = p.rstd[r];
    T sum = 0, dot = 0;
    for (std::int64_t i = threadIdx.x; i < p.n; i += kThreads) {
      const T g = p.affine.scale(widened(dy[i]), i);
      sum += g;
      dot += g * ((widened(row[i]) - mean) * rstd);
    }
    sum = block_reduce<kThreads>(sum, Plus{}) / count;
    dot = block_reduce<kThreads>(dot, Plus{}) / count;
    for (std::int64_t i = threadIdx.x; i < p.n; i += kThreads) {
      T dx =
          (p.affine.scale(widened(dy[i]), i) - sum - (widened(row[i]) - mean) * rstd * dot) * rstd;
      if constexpr (kAdds) dx = dx + p.dsum[r * p.n + i];
      p.dx[r * p.n + i] = static_cast<In>(dx);
      if constexpr (kAdds && !std::is_same_v<In, Out>)
        if (p.dresidual != nullptr) p.dresidual[r * p.n + i] = static_cast<Out>(dx);
    }
  }
}

// The two sums over a row in backward, reduced together.
template <class T>
struct RowSums {
  T gradient, dot;
  __device__ RowSums operator+(const RowSums& b) const {
    return {gradient + b.gradient, dot + b.dot};
  }
};
template <class T>
__device__ RowSums<T> from_lane_xor(const RowSums<T>& sums, int lanes) {
  return {cuda::from_lane_xor(sums.gradient, lanes), cuda::from_lane_xor(sums.dot, lanes)};
}

template <bool kAdds, class Size, class In, class Out>
__global__ void __launch_bounds__(kThreads, 2) backward_rows(Backward<In, Out> p) {  // version 2
  using T = Wide<In>;
  constexpr int kTeam = Size::kTeam;
  using Share = RowShare<T, kTeam, Size::kPacks>;
  const auto count = static_cast<T>(p.n);
  Share dweight{}, dbias{};
  each_row<kTeam>(p.rows, [&](std::int64_t r, int lane) {
    Share dy{}, x{};
    dy.load(p.dy + r * p.n, p.n, lane, p.packs);
    x.load(p.x + r * p.n, p.n, lane, p.packs);
    const T mean = p.mean[r], rstd = p.rstd[r];
    x.with([=](T& xhat) { xhat = (xhat - mean) * rstd; });
    dbias.with([](T& to, T& g) { to += g; }, dy);
    dweight.with([](T& to, T& g, T& xhat) { to += g * xhat; }, dy, x);
    if (p.dx == nullptr) return;
    if (p.affine.weight != nullptr) {
      Share weight{};
      weight.load(p.affine.weight, p.n, lane, p.packs);
      dy.with([](T& g, T& w) { g = g * w; }, weight);
    }
    RowSums<T> sums{0, 0};
    dy.with(
        [&](T& g, T& xhat) {
          sums.gradient += g;
          sums.dot += g * xhat;
        },
        x);
    sums = team_reduce<kTeam>(sums, Plus{});
    const T mean_g = sums.gradient / count, mean_dot = sums.dot / count;
    dy.with([=](T& g, T& xhat) { g = (g - mean_g - xhat * mean_dot) * rstd; }, x);
    if constexpr (kAdds) {
      x.load(p.dsum + r * p.n, p.n, lane, p.packs);
      dy.with([](T& g, T& added) { g = g + added; }, x);
    }
    dy.store(p.dx + r * p.n, p.n, lane, p.packs);
    if constexpr (kAdds && !std::is_same_v<In, Out>)
      if (p.dresidual != nullptr) dy.store(p.dresidual + r * p.n, p.n, lane, p.packs);
  });
  if (p.partials == nullptr) return;
  const int lane = Team<kTeam>().lane;
  T* const partials = p.partials + std::int64_t{blockIdx.x} * 2 * p.n;
  if constexpr (kTeam == kThreads) {
    dweight.each(p.n, lane, [&](T& v, std::int64_t i) { partials[i] = v; });
    dbias.each(p.n, lane, [&](T& v, std::int64_t i) { partials[p.n + i] = v; });
  } else {
    // The teams of the block add one after another.
    __shared__ T total[2][team_capacity<T>(kTeam, Size::kPacks)];
    for (int team = 0; team < kThreads / kTeam; ++team) {
      if (static_cast<int>(threadIdx.x) / kTeam == team) {
        const auto add = [team](T& to, T value) { to = team == 0 ? value : to + value; };
        dweight.each(p.n, lane, [&](T& v, std::int64_t i) { add(total[0][i], v); });
        dbias.each(p.n, lane, [&](T& v, std::int64_t i) { add(total[1][i], v); });
      }
      __syncthreads();
    }
    for (std::int64_t i = threadIdx.x; i < 2 * p.n; i += kThreads)
      partials[i] = total[i / p.n][i % p.n];
  }
}

// dweight and dbias from the blocks' shares. Either may be null.
template <class T, class In>
struct GradientSums : Sums<T> {
  static constexpr bool kPacks = false;
  const T* partials;  // (blocks, 2, n)
  In *dweight, *dbias;
  std::int64_t n;
  __device__ T term(std::int64_t at, std::int64_t) const { return partials[at]; }
  template <class At>
  __device__ void finish(const At& at, T value) const {
    In* const to = at[0] < n ? dweight : dbias;
    if (to != nullptr) to[at[0] < n ? at[0] : at[0] - n] = static_cast<In>(value);
  }
};

// Folds n columns of `rows` rows, which are `stride` apart.
template <class Fold>
void fold_column_sums(const Fold& fold, std::int64_t rows, std::int64_t n, std::int64_t stride) {
  fold_nest(fold, one_run<2>(n, {1, 1}), one_run<1>(rows, {stride}), false);
}

// dweight as a fold over (rows, n), for version 1.
template <class In, class Out>
struct WeightGradient : Sums<Wide<In>> {
  static constexpr bool kPacks = false;
  using T = Wide<In>;
  const Out* dy;
  const In* x;
  const T *mean, *rstd;
  In* out;
  __device__ T term(std::int64_t at, std::int64_t row) const {
    return widened(dy[at]) * ((widened(x[at]) - mean[row]) * rstd[row]);
  }
  template <class At>
  __device__ void finish(const At& at, T value) const {
    out[at[0]] = static_cast<In>(value);
  }
};

template <class T>
T* or_null(std::span<T> s) {
  return s.empty() ? nullptr : s.data();
}

// A block's share of the gradients is a row that the fold has to read, so blocks are as few as fill
// an H200. Each of its 132 multiprocessors holds two blocks of eight teams, or four of one team.
constexpr std::int64_t kRowsPerWarp = 2, kRowsPerBlock = 4;
constexpr std::int64_t kMostBlocks = 256, kMostBlocksOfOneTeam = 512;

template <bool kAdds, class In, class Out>
void backward(Backward<In, Out> p, In* dweight, In* dbias) {
  using T = Wide<In>;
  const bool vectors = dweight != nullptr || dbias != nullptr;
  const bool held = with_team<T, kWarpPacks>(p.n, [&]<class Size>(Size) {
    constexpr bool kWarps = Size::kTeam == kWarp;
    const std::int64_t blocks =
        std::min(ceil_div(p.rows, kWarps ? kThreads / kWarp * kRowsPerWarp : kRowsPerBlock),
                 kWarps ? kMostBlocks : kMostBlocksOfOneTeam);
    const Scratch<T> partials(vectors ? blocks * 2 * p.n : 0);
    p.partials = vectors ? partials.data() : nullptr;
    if (blocks > 0)
      launch(backward_rows<kAdds, Size, In, Out>, dim3(static_cast<unsigned>(blocks)), kThreads, 0,
             stream(), p);
    if (vectors)
      fold_column_sums(GradientSums<T, In>{{}, partials.data(), dweight, dbias, p.n}, blocks,
                       2 * p.n, 2 * p.n);
  });
  if (held) return;
  if (p.dx != nullptr && p.rows > 0) launch_over(backward_any<kAdds, In, Out>, p.rows, 1, p);
  if (dweight != nullptr)
    fold_column_sums(WeightGradient<In, Out>{{}, p.dy, p.x, p.mean, p.rstd, dweight}, p.rows, p.n,
                     p.n);
  if (dbias != nullptr)
    fold_column_sums(SumInto<Out, In>{{}, p.dy, dbias, false}, p.rows, p.n, p.n);
}

template <class T, class M>
std::int64_t row_length(std::span<const T> x, std::span<const M> rows) {
  return rows.empty() ? 0 : std::ssize(x) / std::ssize(rows);
}

// Returns the length of a row or, if there are no rows, of dweight or dbias.
template <class T, class M>
std::int64_t row_length(std::span<const T> x, std::span<const M> rows, std::span<const T> dweight,
                        std::span<const T> dbias) {
  return std::max({std::ssize(dweight), std::ssize(dbias), row_length<T, M>(x, rows)});
}

// ---- the functions of layernorm.hpp, for some combinations of types ----

template <class In, class Out>
void norm(std::span<const In> x, std::span<const In> weight, std::span<const In> bias, double eps,
          std::span<Out> y, std::span<Wide<In>> mean, std::span<Wide<In>> rstd) {
  using T = Wide<In>;
  const std::int64_t n = row_length<In, T>(x, mean);
  forward<false, In, Out>({x.data(),
                           nullptr,
                           nullptr,
                           {or_null(weight), or_null(bias)},
                           static_cast<T>(eps),
                           y.data(),
                           mean.data(),
                           rstd.data(),
                           std::ssize(mean),
                           n,
                           rows_in_packs<T>(n, x.data(), y.data(), weight.data(), bias.data())});
}

template <class T, class Out>
void add_norm(std::span<const T> x, std::span<const Out> residual, std::span<const T> weight,
              std::span<const T> bias, double eps, std::span<T> sum, std::span<Out> y,
              std::span<T> mean, std::span<T> rstd) {
  const std::int64_t n = row_length<T, T>(x, mean);
  forward<true, T, Out>({x.data(),
                         residual.data(),
                         sum.data(),
                         {or_null(weight), or_null(bias)},
                         static_cast<T>(eps),
                         y.data(),
                         mean.data(),
                         rstd.data(),
                         std::ssize(mean),
                         n,
                         rows_in_packs<T>(n, x.data(), residual.data(), sum.data(), y.data(),
                                          weight.data(), bias.data())});
}

template <class In, class Out>
void norm_backward(std::span<const Out> dy, std::span<const In> x, std::span<const In> weight,
                   std::span<const Wide<In>> mean, std::span<const Wide<In>> rstd, std::span<In> dx,
                   std::span<In> dweight, std::span<In> dbias) {
  using T = Wide<In>;
  const std::int64_t n = row_length<In, T>(x, mean, dweight, dbias);
  backward<false, In, Out>({dy.data(),
                            nullptr,
                            x.data(),
                            {or_null(weight), nullptr},
                            mean.data(),
                            rstd.data(),
                            or_null(dx),
                            nullptr,
                            nullptr,
                            std::ssize(mean),
                            n,
                            rows_in_packs<T>(n, dy.data(), x.data(), dx.data(), weight.data())},
                           or_null(dweight), or_null(dbias));
}

template <class T, class Out>
void add_norm_backward(std::span<const Out> dy, std::span<const T> dsum, std::span<const T> sum,
                       std::span<const T> weight, std::span<const T> mean, std::span<const T> rstd,
                       std::span<T> dx, std::span<Out> dresidual, std::span<T> dweight,
                       std::span<T> dbias) {
  const std::int64_t n = row_length<T, T>(sum, mean, dweight, dbias);
  backward<true, T, Out>({dy.data(),
                          dsum.data(),
                          sum.data(),
                          {or_null(weight), nullptr},
                          mean.data(),
                          rstd.data(),
                          or_null(dx),
                          or_null(dresidual),
                          nullptr,
                          std::ssize(mean),
                          n,
                          rows_in_packs<T>(n, dy.data(), dsum.data(), sum.data(), dx.data(),
                                           dresidual.data(), weight.data())},
                         or_null(dweight), or_null(dbias));
}

}  // namespace

template <class T>
void layer_norm(std::span<const T> x, std::span<const T> weight, std::span<const T> bias,
                double eps, std::span<T> y, std::span<Wide<T>> mean, std::span<Wide<T>> rstd) {
  norm<T, T>(x, weight, bias, eps, y, mean, rstd);
}
template <class H>
void layer_norm_lowered(std::span<const float> x, std::span<const float> weight,
                        std::span<const float> bias, double eps, std::span<H> y,
                        std::span<float> mean, std::span<float> rstd) {
  norm<float, H>(x, weight, bias, eps, y, mean, rstd);
}

template <class T>
void add_layer_norm(std::span<const T> x, std::span<const T> residual, std::span<const T> weight,
                    std::span<const T> bias, double eps, std::span<T> sum, std::span<T> y,
                    std::span<T> mean, std::span<T> rstd) {
  add_norm<T, T>(x, residual, weight, bias, eps, sum, y, mean, rstd);
}
template <class H>
void add_layer_norm_lowered(std::span<const float> x, std::span<const H> residual,
                            std::span<const float> weight, std::span<const float> bias, double eps,
                            std::span<float> sum, std::span<H> y, std::span<float> mean,
                            std::span<float> rstd) {
  add_norm<float, H>(x, residual, weight, bias, eps, sum, y, mean, rstd);
}

template <class T>
void layer_norm_backward(std::span<const T> dy, std::span<const T> x, std::span<const T> weight,
                         std::span<const Wide<T>> mean, std::span<const Wide<T>> rstd,
                         std::span<T> dx, std::span<T> dweight, std::span<T> dbias) {
  norm_backward<T, T>(dy, x, weight, mean, rstd, dx, dweight, dbias);
}
template <class H>
void layer_norm_lowered_backward(std::span<const H> dy, std::span<const float> x,
                                 std::span<const float> weight, std::span<const float> mean,
                                 std::span<const float> rstd, std::span<float> dx,
                                 std::span<float> dweight, std::span<float> dbias) {
  norm_backward<float, H>(dy, x, weight, mean, rstd, dx, dweight, dbias);
}

template <class T>
void add_layer_norm_backward(std::span<const T> dy, std::span<const T> dsum, std::span<const T> sum,
                             std::span<const T> weight, std::span<const T> mean,
                             std::span<const T> rstd, std::span<T> dx, std::span<T> dweight,
                             std::span<T> dbias) {
  add_norm_backward<T, T>(dy, dsum, sum, weight, mean, rstd, dx, {}, dweight, dbias);
}
template <class H>
void add_layer_norm_lowered_backward(std::span<const H> dy, std::span<const float> dsum,
                                     std::span<const float> sum, std::span<const float> weight,
                                     std::span<const float> mean, std::span<const float> rstd,
                                     std::span<float> dx, std::span<H> dresidual,
                                     std::span<float> dweight, std::span<float> dbias) {
  add_norm_backward<float, H>(dy, dsum, sum, weight, mean, rstd, dx, dresidual, dweight, dbias);
}

RINGSMITH_FLOAT_AND_DOUBLE(layer_norm)
RINGSMITH_FLOAT_AND_DOUBLE(layer_norm_backward)
RINGSMITH_FLOAT_AND_DOUBLE(add_layer_norm)
RINGSMITH_FLOAT_AND_DOUBLE(add_layer_norm_backward)
RINGSMITH_HALVES(layer_norm)
RINGSMITH_HALVES(layer_norm_backward)
RINGSMITH_HALVES(layer_norm_lowered)
RINGSMITH_HALVES(layer_norm_lowered_backward)
RINGSMITH_HALVES(add_layer_norm_lowered)
RINGSMITH_HALVES(add_layer_norm_lowered_backward)

}  // namespace ringsmith::kernels::cuda
