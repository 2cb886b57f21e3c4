// Optimizer steps: one pass over the arrays.
//
// Adam reads four arrays and writes three, i.e. 28 bytes of memory traffic per element for about 15
// operations. Enough loads must therefore be in flight: packs of 16 bytes from all four arrays, and
// a grid that fills the device. Arrays that are not aligned (a gradient inside a bucket) are
// processed element by element; even so, a warp reads 128 bytes at a time. The operations and their
// order are the CPU oracle's, and each is rounded separately (--fmad=false), so the bits are
// PyTorch's.
//
// A step that a graph repeats reads its number and its learning rate in the device's memory: a
// kernel of one thread per parameter advances the numbers and computes the factors that depend on
// them, and adam_table reads the factors of each row.
//
// Clipping does not wait for the device: a fold sums squares in double, one thread computes the
// factor from all sums, and scale() reads it from device memory.
#include <cmath>
#include <type_traits>

#include "kernels/cuda/elementwise_math.cuh"
#include "kernels/cuda/fold.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/table.cuh"
#include "kernels/optim.hpp"

namespace ringsmith::kernels::cuda {

namespace {

template <class T>
struct Sgd {
  T lr, momentum, fresh, decay;
  bool nesterov, first, has_momentum, has_decay;

  explicit Sgd(const SgdStep& s)
      : lr(static_cast<T>(s.lr)),
        momentum(static_cast<T>(s.momentum)),
        fresh(static_cast<T>(1 - s.dampening)),
        decay(static_cast<T>(s.weight_decay)),
        nesterov(s.nesterov),
        first(s.first),
        has_momentum(s.momentum != 0),
        has_decay(s.weight_decay != 0) {}

  __device__ void operator()(const T& g, T& p, T& buf) const {
    T d = g;
    if (has_decay) d = d + decay * p;
    if (has_momentum) {
      buf = first ? d : momentum * buf + fresh * d;
      d = nesterov ? d + momentum * buf : buf;
    }
    p = p - lr * d;
  }
  __device__ void operator()(const T& g, T& p) const {
    T none{};
    (*this)(g, p, none);
  }
};

template <class T>
struct Adam {
  T step_size, correction, beta1, fresh1, beta2, fresh2, eps, decay, shrink;
  bool decoupled, has_decay;

  explicit Adam(const AdamStep& s)
      : step_size(static_cast<T>(s.lr / (1 - std::pow(s.beta1, static_cast<double>(s.t))))),
        correction(static_cast<T>(std::sqrt(1 - std::pow(s.beta2, static_cast<double>(s.t))))),
        beta1(static_cast<T>(s.beta1)),
        fresh1(static_cast<T>(1 - s.beta1)),
        beta2(static_cast<T>(s.beta2)),
        fresh2(static_cast<T>(1 - s.beta2)),
        eps(static_cast<T>(s.eps)),
        decay(static_cast<T>(s.weight_decay)),
        shrink(static_cast<T>(1 - s.lr * s.weight_decay)),
        decoupled(s.decoupled),
        has_decay(s.weight_decay != 0) {}

  __device__ void moments(const T& g, T& p, T& m, T& v) const {
    T d = g;
    if (decoupled)
      p = p * shrink;
    else if (has_decay)
      d = d + decay * p;
    m = beta1 * m + fresh1 * d;
    v = beta2 * v + (fresh2 * d) * d;
  }
  __device__ void move(T& p, const T& m, const T& second) const {
    p = p - (step_size * m) / (sqrt_of(second) / correction + eps);
  }
  __device__ void operator()(const T& g, T& p, T& m, T& v) const {
    moments(g, p, m, v);
    move(p, m, v);
  }
  __device__ void operator()(const T& g, T& p, T& m, T& v, T& largest) const {
    moments(g, p, m, v);
    // Not max(), because a NaN in either operand must be kept.
    if (!(largest >= v)) largest = is_nan(largest) ? largest : v;
    move(p, m, largest);
  }
};

// Calls op(g[i], updated[i]...) for this thread's elements i < n: packs of kWidth elements, number
// first, first + stride, ..., then single elements.
template <int kWidth, class Op, class T, class... Updated>
__device__ void update_items(std::int64_t first, std::int64_t stride, std::int64_t n, const Op& op,
                             const T* g, Updated*... updated) {
  for (std::int64_t i = first; i < n / kWidth; i += stride) {
    const auto step = [&](const Pack<T, kWidth>& gradient, auto... packs) {
      for (int k = 0; k < kWidth; ++k) op(gradient.at[k], packs.at[k]...);
      (store_pack(updated, i, packs), ...);
    };
    step(load_pack<kWidth>(g, i), load_pack<kWidth>(updated, i)...);
  }
  for (std::int64_t i = n / kWidth * kWidth + first; i < n; i += stride) op(g[i], updated[i]...);
}

template <int kWidth, class Op, class T, class... Updated>
__global__ void update(std::int64_t n, Op op, const T* g, Updated*... updated) {
  update_items<kWidth>(first_item(), item_stride(), n, op, g, updated...);
}

template <class Op, class T, class... Updated>
void run(std::span<const T> g, const Op& op, Updated*... updated) {
  const auto n = static_cast<std::int64_t>(g.size());
  if (n == 0) return;
  constexpr int kWidth = kPack<T>;
  if (aligned(g.data(), updated...))
    launch_over(update<kWidth, Op, T, Updated...>, ceil_div(n, kWidth), kThreads, n, op, g.data(),
                updated...);
  else
    launch_over(update<1, Op, T, Updated...>, n, kThreads, n, op, g.data(), updated...);
}

// --- many parameters in one launch

constexpr int kTurns = 4;  // packs per thread in a chunk

template <class T>
struct AdamRow {
  const T* g;
  T *p, *m, *v, *largest;
  std::int32_t clock;  // index of its AdamClock
  bool packs;
};

// The factors of a row's update: arguments of the kernel, or its clock's.
template <class T>
struct GivenAdam : Adam<T> {
  [[nodiscard]] __device__ const Adam<T>& of(const AdamRow<T>& /*row*/) const { return *this; }
};
template <class T>
struct ClockedAdam {
  Adam<T> fixed;
  const AdamClock* clocks;
  [[nodiscard]] __device__ Adam<T> of(const AdamRow<T>& row) const {
    const AdamClock& clock = clocks[row.clock];
    Adam<T> now = fixed;
    now.step_size = static_cast<T>(clock.step_size);
    now.correction = static_cast<T>(clock.correction);
    now.shrink = static_cast<T>(clock.shrink);
    return now;
  }
};

constexpr int kAdamRows = 64;
template <class T>
using AdamTable = TensorTable<AdamRow<T>, kAdamRows, std::int64_t{kTurns} * kThreads * kPack<T>>;

template <class T>
__global__ void advance_clocks(const __grid_constant__ AdamTable<T> table, AdamClock* clocks,
                               const double* lr, double beta1, double beta2, double decay) {
  const auto row = static_cast<int>(threadIdx.x);
  if (row >= table.count) return;
  AdamClock& clock = clocks[table.rows[row].clock];
  const double t = clock.t + 1;
  clock = {t, *lr / (1 - pow_of(beta1, t)), sqrt_of(1 - pow_of(beta2, t)), 1 - *lr * decay};
}

template <bool kAmsgrad, class T, class Op>
__global__ void adam_table(const __grid_constant__ AdamTable<T> table, Op factors) {
  table.each_chunk([&](const AdamRow<T>& row, std::int64_t begin, std::int64_t n) {
    const Adam<T>& op = factors.of(row);
    const auto run = [&](auto width, auto*... more) {
      update_items<decltype(width)::value>(threadIdx.x, kThreads, n, op, row.g + begin,
                                           row.p + begin, row.m + begin, row.v + begin, more...);
    };
    const auto both = [&](auto*... more) {
      if (row.packs)
        run(std::integral_constant<int, kPack<T>>(), more...);
      else
        run(std::integral_constant<int, 1>(), more...);
    };
    if constexpr (kAmsgrad)
      both(row.largest + begin);
    else
      both();
  });
}

// Calls before(table), e.g. to queue another kernel, and launches the update of each table.
template <bool kAmsgrad, class T, class Op, class Before>
void launch_tables(std::span<const AdamTensor<T>> all, std::span<const std::int32_t> which,
                   const Op& factors, const Before& before) {
  static_assert(sizeof(AdamTable<T>) + sizeof(Op) <= kArgumentBytes);
  for_each_table<AdamTable<T>>(
      all,
      [&](const AdamTensor<T>& t) {
        return AdamRow<T>{
            t.g.data(),
            t.p.data(),
            t.m.data(),
            t.v.data(),
            t.largest.data(),
            which.empty() ? 0 : which[static_cast<std::size_t>(&t - all.data())],
            aligned(t.g.data(), t.p.data(), t.m.data(), t.v.data(), t.largest.data())};
      },
      [](const AdamTensor<T>& t) { return std::ssize(t.p); },
      [&](const AdamTable<T>& table) {
        before(table);
        launch_over(adam_table<kAmsgrad, T, Op>, table.chunks, 1, table, factors);
      });
}

template <class T, class Op, class Before>
void update_all(std::span<const AdamTensor<T>> all, std::span<const std::int32_t> which,
                const Op& factors, const Before& before) {
  if (std::ranges::any_of(all, [](const AdamTensor<T>& t) { return !t.largest.empty(); }))
    launch_tables<true, T>(all, which, factors, before);
  else
    launch_tables<false, T>(all, which, factors, before);
}

template <class T>
struct SquareSum : Sums<double> {
  static constexpr bool kPacks = true;
  const T* x;
  double* out;
  static __device__ double square(T x) { return static_cast<double>(x) * static_cast<double>(x); }
  __device__ double term(std::int64_t at, std::int64_t) const { return square(x[at]); }
  __device__ Pack<double, kChains> pack(std::int64_t at) const {
    const Pack<T, kChains> loaded = load_pack<kChains>(x + at, 0);
    Pack<double, kChains> squares;
    for (int k = 0; k < kChains; ++k) squares.at[k] = square(loaded.at[k]);
    return squares;
  }
  template <class At>
  __device__ void finish(const At&, double sum) const {
    *out = sum;
  }
};

// One thread, because a model has hundreds of parameter tensors, not millions, and the sum must
// have the CPU's order.
__global__ void clip_factor_kernel(const double* sums, std::int64_t n, double max_norm, float* norm,
                                   float* factor) {
  double squares = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto part = static_cast<float>(sqrt(sums[i]));
    squares += static_cast<double>(part) * static_cast<double>(part);
  }
  const auto total = static_cast<float>(sqrt(squares));
  const float wanted = static_cast<float>(max_norm) / (total + 1e-6F);
  *norm = total;
  *factor = wanted > 1 ? 1 : wanted;  // NaN stays NaN
}

template <class T>
struct ScaleBy {
  const float* factor;
  __device__ void operator()(const T& x, T& out) const { out = x * static_cast<T>(*factor); }
};

}  // namespace

template <class T>
void sgd(std::span<T> p, std::span<const T> g, std::span<T> buf, const SgdStep& step) {
  if (step.momentum != 0)
    run(g, Sgd<T>(step), p.data(), buf.data());
  else
    run(g, Sgd<T>(step), p.data());
}

template <class T>
void adam(std::span<T> p, std::span<const T> g, std::span<T> m, std::span<T> v,
          std::span<T> largest, const AdamStep& step) {
  if (largest.empty())
    run(g, Adam<T>(step), p.data(), m.data(), v.data());
  else
    run(g, Adam<T>(step), p.data(), m.data(), v.data(), largest.data());
}

template <class T>
void adam_all(std::span<const AdamTensor<T>> all, const AdamStep& step) {
  update_all(all, {}, GivenAdam<T>{Adam<T>(step)}, [](const AdamTable<T>&) {});
}

template <class T>
void adam_clocked(std::span<const AdamTensor<T>> all, std::span<const std::int32_t> which,
                  std::span<AdamClock> clocks, std::span<const double> lr, const AdamStep& step) {
  update_all(all, which, ClockedAdam<T>{Adam<T>(step), clocks.data()},
             [&](const AdamTable<T>& table) {
               launch(advance_clocks<T>, 1, kAdamRows, 0, stream(), table, clocks.data(), lr.data(),
                      step.beta1, step.beta2, step.weight_decay);
             });
}

template <class T>
void sum_of_squares(std::span<const T> x, std::span<double> sum) {
  fold_flat(SquareSum<T>{{}, x.data(), sum.data()}, static_cast<std::int64_t>(x.size()),
            aligned_for(x.data(), kChains));
}

void clip_factor(std::span<const double> sums, double max_norm, std::span<float> norm,
                 std::span<float> factor) {
  launch(clip_factor_kernel, 1, 1, 0, stream(), sums.data(), std::ssize(sums), max_norm,
         norm.data(), factor.data());
}

template <class T>
void scale(std::span<T> x, std::span<const float> factor) {
  run(std::span<const T>(x), ScaleBy<T>{factor.data()}, x.data());
}

template <class T>
void unscale(std::span<T> g, float factor, std::span<std::int32_t> found) {
  T* const values = g.data();
  std::int32_t* const flag = found.data();
  for_each(std::ssize(g), [=] __device__(std::int64_t i) {
    const T value = values[i] * static_cast<T>(factor);
    if (!(value - value == 0)) atomicMax(flag, 1);  // value - value is NaN for infinity and NaN
    values[i] = value;
  });
}

RINGSMITH_FLOAT_AND_DOUBLE(unscale)
RINGSMITH_FLOAT_AND_DOUBLE(sgd)
RINGSMITH_FLOAT_AND_DOUBLE(adam)
RINGSMITH_FLOAT_AND_DOUBLE(adam_all)
RINGSMITH_FLOAT_AND_DOUBLE(adam_clocked)
RINGSMITH_FLOAT_AND_DOUBLE(sum_of_squares)
RINGSMITH_FLOAT_AND_DOUBLE(scale)

}  // namespace ringsmith::kernels::cuda
