// Losses over a batch of rows.
//
//   nll_rows                 a thread per row; with smoothing a fold over each row
//   reduce_losses            a fold over the rows that are not ignored. For the mean, another fold
//                            counts these rows first and leaves the divisor in device memory
//   nll_backward,            a warp or a block per row. The gradient is the same expression for all
//   cross_entropy_backward   columns except the target's, so no pass over the row is needed first
//   cross_entropy_rows       computes the sums like softmax's versions 2 and 3 (softmax.cu), but
//                            keeps only the loss and two statistics of each row. Reads the logits
//                            once, or long rows twice if there is smoothing
//   cross_entropy_rows_      recomputes the probabilities from the logits and these statistics,
//   backward                 with one read and one write. GPT-2's logits of 8192 tokens are 0.8 GB
//                            in bf16, and log-probabilities would have to be written, kept and read
//                            as well. Writes over the logits, if the caller no longer needs them
//   squared_error            a fold over two arrays in packs
#include <string>

#include "kernels/cuda/elementwise_math.cuh"
#include "kernels/cuda/first_bad.cuh"
#include "kernels/cuda/fold.cuh"
#include "kernels/cuda/log_sum.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/loss.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::kernels::cuda {

void check_targets(const char* op, const Targets& targets) {
  const Targets t = targets;
  const std::int64_t* const index = t.index.data();
  const std::int64_t classes = t.classes, ignored = t.ignore_index;
  check_later(
      std::ssize(t.index),
      [=] __device__(std::int64_t i) {
        return index[i] != ignored && (index[i] < 0 || index[i] >= classes);
      },
      index,
      [op = std::string(op), classes, ignored](std::uint64_t row, std::int64_t value) {
        return op + ": target " + std::to_string(value) + " of row " + std::to_string(row) +
               " is outside [0, " + std::to_string(classes) + ") and is not ignore_index (" +
               std::to_string(ignored) + ")";
      });
}

namespace {

template <class T>
struct Labels {
  const std::int64_t* index;
  std::int64_t rows, classes, ignored;
  T keep, spread;
  bool smooth;

  // -log of the target's probability, or NaN if the target is out of range (see check_targets).
  [[nodiscard]] __device__ T surprise(const T* log_probs, std::int64_t row) const {
    const std::int64_t target = index[row];
    return target >= 0 && target < classes ? -log_probs[row * classes + target]
                                           : static_cast<T>(NAN);
  }
  explicit Labels(const Targets& t)
      : index(t.index.data()),
        rows(std::ssize(t.index)),
        classes(t.classes),
        ignored(t.ignore_index),
        keep(static_cast<T>(1 - t.smoothing)),
        spread(static_cast<T>(t.smoothing / static_cast<double>(t.classes))),
        smooth(t.smoothing != 0) {}
};

template <class T>
struct SmoothedLoss : Sums<T> {
  static constexpr bool kPacks = false;
  Labels<T> labels;
  const T* log_probs;
  T* losses;
  __device__ T term(std::int64_t at, std::int64_t) const { return -log_probs[at]; }
  template <class At>
  __device__ void finish(const At& at, T sum) const {
    const std::int64_t row = at[0], target = labels.index[row];
    losses[row] = target == labels.ignored
                      ? T(0)
                      : labels.keep * labels.surprise(log_probs, row) + labels.spread * sum;
  }
};

template <class T>
struct Counted : Sums<std::int64_t> {
  static constexpr bool kPacks = false;
  const std::int64_t* index;
  std::int64_t ignored;
  T* divisor;
  __device__ std::int64_t term(std::int64_t at, std::int64_t) const {
    return index[at] == ignored ? 0 : 1;
  }
  template <class At>
  __device__ void finish(const At&, std::int64_t count) const {
    *divisor = static_cast<T>(count);
  }
};

template <class T>
struct TotalLoss : Sums<T> {
  static constexpr bool kPacks = false;
  const T* losses;
  const std::int64_t* index;
  std::int64_t ignored;
  const T* divisor;
  T* loss;
  __device__ T term(std::int64_t at, std::int64_t) const {
    return index[at] == ignored ? T(0) : losses[at];
  }
  template <class At>
  __device__ void finish(const At&, T sum) const {
    *loss = sum / *divisor;
  }
};

// d loss / d log_probs or, if kThroughSoftmax, d loss / d logits. With g the row's gradient:
//   -spread g - [j = target] keep g        and         g (p_j - spread) - [j = target] keep g
template <int kTeam, bool kThroughSoftmax, class T>
__global__ void loss_gradient(Labels<T> labels, const T* log_probs, const T* row_grad,
                              bool one_grad, T* out) {
  each_row<kTeam>(labels.rows, [&](std::int64_t r, int lane) {
    const std::int64_t target = labels.index[r], begin = r * labels.classes;
    const bool skip = target == labels.ignored;
    const T g = skip ? T(0) : row_grad[one_grad ? 0 : r];
    for (std::int64_t j = lane; j < labels.classes; j += kTeam) {
      T d = labels.smooth ? -(labels.spread * g) : T(0);
      if constexpr (kThroughSoftmax) d = g * (exp_of(log_probs[begin + j]) - labels.spread);
      if (j == target) d -= labels.keep * g;
      out[begin + j] = skip ? T(0) : d;
    }
  });
}

template <bool kThroughSoftmax, class T>
void backward(const Targets& t, const T* log_probs, std::span<const T> row_grad, T* out) {
  const Labels<T> labels(t);
  if (labels.rows == 0 || labels.classes == 0) return;
  const bool warps = labels.classes <= 512, one = row_grad.size() == 1;
  launch_over(warps ? loss_gradient<kWarp, kThroughSoftmax, T>
                    : loss_gradient<kThreads, kThroughSoftmax, T>,
              labels.rows, warps ? kThreads / kWarp : 1, labels, log_probs, row_grad.data(), one,
              out);
}

// --- cross entropy directly from the logits

// Rows of S, at least `classes` wide. The arithmetic is in T.
template <class S>
struct LogitRows {
  using T = Wide<S>;
  Labels<T> labels;
  const S* x;
  std::int64_t width;
  LogSum<T>* statistics;
  T* losses;
  bool packs;

  // Called by one thread. unlikely: the sum of -log p over the row, for smoothing.
  __device__ void finish(std::int64_t r, const LogSum<T>& s, T unlikely) const {
    statistics[r] = s;
    const std::int64_t target = labels.index[r];
    T loss = static_cast<T>(NAN);  // if the target is out of range, which check_targets reports
    if (target >= 0 && target < labels.classes) loss = -s.log_prob(widened(x[r * width + target]));
    if (labels.smooth) loss = labels.keep * loss + labels.spread * unlikely;
    losses[r] = target == labels.ignored ? T(0) : loss;
  }
};

template <class S>
__global__ void logit_rows_any(LogitRows<S> p) {
  using T = Wide<S>;
  const std::int64_t n = p.labels.classes;
  for (std::int64_t r = blockIdx.x; r < p.labels.rows; r += gridDim.x) {
    const S* const x = p.x + r * p.width;
    const auto [largest, sum] = max_and_sum(x, n);
    const LogSum<T> s{largest, log_of(sum)};
    T unlikely = 0;
    if (p.labels.smooth) {  // a second pass, mostly from L2
      for (std::int64_t i = threadIdx.x; i < n; i += kThreads)
        unlikely -= s.log_prob(widened(x[i]));
      unlikely = block_reduce<kThreads>(unlikely, Plus{});
    }
    if (threadIdx.x == 0) p.finish(r, s, unlikely);
  }
}

template <class Size, class S>
__global__ void __launch_bounds__(kThreads) logit_rows(LogitRows<S> p) {
  using T = Wide<S>;
  constexpr int kTeam = Size::kTeam;
  const std::int64_t n = p.labels.classes;
  each_row<kTeam>(p.labels.rows, [&](std::int64_t r, int lane) {
    RowShare<T, kTeam, Size::kPacks> row{};
    row.load(p.x + r * p.width, n, lane, p.packs);
    T largest = kLowest<T>;
    row.each(n, lane, [&](T& x, std::int64_t) { largest = Larger{}(largest, x); });
    largest = team_reduce<kTeam>(largest, Larger{});
    const T sum = row.sum(n, lane, [=](T x, std::int64_t) { return exp_of(x - largest); });
    const LogSum<T> s{largest, log_of(sum)};
    T unlikely = 0;
    if (p.labels.smooth)
      unlikely = row.sum(n, lane, [=](T x, std::int64_t) { return -s.log_prob(x); });
    if (lane == 0) p.finish(r, s, unlikely);
  });
}

// dx may be x, because a thread writes only elements that no other thread reads.
template <int kTeam, int kWidth, class S>
__global__ void logit_gradient(Labels<Wide<S>> labels, const S* x, std::int64_t width,
                               const LogSum<Wide<S>>* statistics, const Wide<S>* row_grad,
                               bool one_grad, S* dx) {
  using T = Wide<S>;
  each_row<kTeam>(labels.rows, [&](std::int64_t r, int lane) {
    const std::int64_t target = labels.index[r];
    const bool skip = target == labels.ignored;
    const T g = skip ? T(0) : row_grad[one_grad ? 0 : r];
    const LogSum<T> s = statistics[r];
    for (std::int64_t i = lane; i < width / kWidth; i += kTeam) {
      Pack<T, kWidth> pack{};
      if (!skip) pack = widened(load_pack<kWidth>(x + r * width, i));
      for (int k = 0; k < kWidth; ++k) {
        const std::int64_t column = i * kWidth + k;
        T d = g * (exp_of(s.log_prob(pack.at[k])) - labels.spread);
        if (column == target) d -= labels.keep * g;
        pack.at[k] = skip || column >= labels.classes ? T(0) : d;
      }
      store_pack(dx + r * width, i, narrowed<S>(pack));
    }
  });
}

template <class T>
struct SquaredError : Sums<T> {
  static constexpr bool kPacks = true;
  const T *x, *y;
  T divisor, *loss;
  __device__ T term(std::int64_t at, std::int64_t) const {
    const T d = x[at] - y[at];
    return d * d;
  }
  __device__ Pack<T, kChains> pack(std::int64_t at) const {
    Pack<T, kChains> a = load_pack<kChains>(x + at, 0);
    const Pack<T, kChains> b = load_pack<kChains>(y + at, 0);
    for (int k = 0; k < kChains; ++k) a.at[k] = (a.at[k] - b.at[k]) * (a.at[k] - b.at[k]);
    return a;
  }
  template <class At>
  __device__ void finish(const At&, T sum) const {
    *loss = sum / divisor;
  }
};

}  // namespace

template <class T>
void nll_rows(std::span<const T> log_probs_, const Targets& t, std::span<T> losses_) {
  const T* const log_probs = log_probs_.data();
  T* const losses = losses_.data();
  const Labels<T> labels(t);
  if (!labels.smooth)
    return for_each(labels.rows, [=] __device__(std::int64_t i) {
      const std::int64_t target = labels.index[i];
      losses[i] = target == labels.ignored ? T(0) : labels.surprise(log_probs, i);
    });
  fold_nest(SmoothedLoss<T>{{}, labels, log_probs, losses},
            one_run<2>(labels.rows, {1, labels.classes}), one_run<1>(labels.classes, {1}), false);
}

template <class T>
void reduce_losses(std::span<const T> losses, const Targets& t, bool mean, std::span<T> loss,
                   std::span<T> divisor_) {
  T* const divisor = divisor_.data();
  const std::int64_t n = std::ssize(losses);
  if (mean)
    fold_flat(Counted<T>{{}, t.index.data(), t.ignore_index, divisor}, n, false);
  else
    for_each(1, [=] __device__(std::int64_t) { *divisor = 1; });
  fold_flat(TotalLoss<T>{{}, losses.data(), t.index.data(), t.ignore_index, divisor, loss.data()},
            n, false);
}

template <class T>
void nll_backward(const Targets& t, std::span<const T> row_grad, std::span<T> dlog_probs) {
  backward<false, T>(t, nullptr, row_grad, dlog_probs.data());
}

template <class T>
void cross_entropy_backward(std::span<const T> log_probs, const Targets& t,
                            std::span<const T> row_grad, std::span<T> dx) {
  backward<true>(t, log_probs.data(), row_grad, dx.data());
}

template <class S>
void cross_entropy_rows(std::span<const S> x, const Targets& t, std::span<Wide<S>> losses,
                        std::span<LogSum<Wide<S>>> statistics) {
  using T = Wide<S>;
  const Labels<T> labels(t);
  if (labels.rows == 0 || labels.classes == 0) return;
  const std::int64_t width = std::ssize(x) / labels.rows;
  const bool packs = rows_in_packs<T>(width, x.data());  // the last pack may end in the padding
  const LogitRows<S> p{labels, x.data(), width, statistics.data(), losses.data(), packs};
  const bool held = with_team<T, kRowPacks>(labels.classes, [&]<class Size>(Size) {
    launch_over(logit_rows<Size, S>, labels.rows, kThreads / Size::kTeam, p);
  });
  if (!held) launch_over(logit_rows_any<S>, labels.rows, 1, p);
}

template <class S>
void cross_entropy_rows_backward(std::span<const S> x, std::span<const LogSum<Wide<S>>> statistics,
                                 const Targets& t, std::span<const Wide<S>> row_grad,
                                 std::span<S> dx) {
  const Labels<Wide<S>> labels(t);
  if (labels.rows == 0 || labels.classes == 0) return;
  const std::int64_t width = std::ssize(x) / labels.rows;
  const bool warps = labels.classes <= 512;
  const bool packs = width % kPack<S> == 0 && aligned(x.data(), dx.data());
  launch_over(
      packs ? (warps ? logit_gradient<kWarp, kPack<S>, S> : logit_gradient<kThreads, kPack<S>, S>)
            : (warps ? logit_gradient<kWarp, 1, S> : logit_gradient<kThreads, 1, S>),
      labels.rows, warps ? kThreads / kWarp : 1, labels, x.data(), width, statistics.data(),
      row_grad.data(), row_grad.size() == 1, dx.data());
}

template <class T>
void squared_error(std::span<const T> x, std::span<const T> y, double divisor, std::span<T> loss) {
  fold_flat(SquaredError<T>{{}, x.data(), y.data(), static_cast<T>(divisor), loss.data()},
            std::ssize(x), aligned_for(x.data(), kChains) && aligned_for(y.data(), kChains));
}

template <class T>
void squared_error_backward(std::span<const T> x_, std::span<const T> y_, T factor,
                            std::span<const T> grad_, std::span<T> dx_, std::span<T> dy_) {
  const T *const x = x_.data(), *const y = y_.data(), *const grad = grad_.data();
  T *const dx = dx_.empty() ? nullptr : dx_.data(), *const dy = dy_.empty() ? nullptr : dy_.data();
  const bool one = grad_.size() == 1;
  for_each(std::ssize(x_), [=] __device__(std::int64_t i) {
    const T d = (factor * (x[i] - y[i])) * grad[one ? 0 : i];
    if (dx != nullptr) dx[i] = d;
    if (dy != nullptr) dy[i] = -d;
  });
}

RINGSMITH_FLOAT_AND_DOUBLE(nll_rows)
RINGSMITH_FLOAT_AND_DOUBLE(reduce_losses)
RINGSMITH_FLOAT_AND_DOUBLE(nll_backward)
RINGSMITH_FLOAT_AND_DOUBLE(cross_entropy_backward)
RINGSMITH_FLOAT_AND_DOUBLE(cross_entropy_rows)
RINGSMITH_FLOAT_AND_DOUBLE(cross_entropy_rows_backward)
RINGSMITH_FLOAT_AND_DOUBLE(squared_error)
RINGSMITH_FLOAT_AND_DOUBLE(squared_error_backward)
RINGSMITH_HALVES(cross_entropy_rows)
RINGSMITH_HALVES(cross_entropy_rows_backward)

}  // namespace ringsmith::kernels::cuda
