// The oracles of the losses. In Mode::fast, those with a fast version call it.
#include "kernels/loss.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cpu/cascade.hpp"
#include "kernels/mode.hpp"
#include "kernels/softmax.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::kernels::cpu {

void check_targets(const char* op, const Targets& targets) {
  for (std::size_t i = 0; i < targets.index.size(); ++i) {
    const std::int64_t t = targets.index[i];
    require(t == targets.ignore_index || (t >= 0 && t < targets.classes),
            std::string(op) + ": target " + std::to_string(t) + " of row " + std::to_string(i) +
                " is outside [0, " + std::to_string(targets.classes) +
                ") and is not ignore_index (" + std::to_string(targets.ignore_index) + ")");
  }
}

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

template <class T>
T grad_of(std::span<const T> grads, std::size_t i) {
  return grads.size() == 1 ? grads[0] : grads[i];
}

template <class T>
void nll_row_backward(const Targets& t, std::size_t i, T grad, T* row) {
  if (t.index[i] == t.ignore_index) {
    std::fill(row, row + t.classes, T{});
    return;
  }
  const T spread = static_cast<T>(t.smoothing / static_cast<double>(t.classes));
  const T keep = static_cast<T>(1 - t.smoothing);
  std::fill(row, row + t.classes, t.smoothing == 0 ? T{} : -(spread * grad));
  row[t.index[i]] += -(keep * grad);
}

}  // namespace

template <class T>
void nll_rows(std::span<const T> log_probs, const Targets& t, std::span<T> losses) {
  const T keep = static_cast<T>(1 - t.smoothing);
  const T spread = static_cast<T>(t.smoothing / static_cast<double>(t.classes));
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const T* row = log_probs.data() + i * at(t.classes);
    if (t.index[i] == t.ignore_index) {
      losses[i] = 0;
      continue;
    }
    losses[i] = -row[t.index[i]];
    if (t.smoothing == 0) continue;
    T sum = 0;
    for (std::int64_t j = 0; j < t.classes; ++j) sum -= row[j];
    losses[i] = keep * losses[i] + spread * sum;
  }
}

template <class T>
void reduce_losses(std::span<const T> losses, const Targets& t, bool mean, std::span<T> loss,
                   std::span<T> divisor) {
  const auto skip = [&](std::int64_t i) { return t.index[at(i)] == t.ignore_index; };
  const auto n = static_cast<std::int64_t>(losses.size());
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < n; ++i) counted += skip(i) ? 0 : 1;
  divisor[0] = mean ? static_cast<T>(counted) : T{1};
  loss[0] = loss_sum<T>(
                n, [&](std::int64_t i) { return losses[at(i)]; }, skip) /
            divisor[0];
}

template <class T>
void nll_backward(const Targets& t, std::span<const T> row_grad, std::span<T> dlog_probs) {
  for (std::size_t i = 0; i < t.index.size(); ++i)
    nll_row_backward(t, i, grad_of(row_grad, i), dlog_probs.data() + i * at(t.classes));
}

template <class T>
void cross_entropy_backward(std::span<const T> log_probs, const Targets& t,
                            std::span<const T> row_grad, std::span<T> dx) {
  if constexpr (std::is_same_v<T, float>)
    if (mode() == Mode::fast) return fast::cross_entropy_backward(log_probs, t, row_grad, dx);
  nll_backward(t, row_grad, dx);
  const auto rows = static_cast<std::int64_t>(t.index.size());
  log_softmax_backward(std::span<const T>(dx), log_probs, dx, {rows, t.classes, 1});
}

template <class T>
void cross_entropy_rows(std::span<const T> x, const Targets& t, std::span<Wide<T>> losses,
                        std::span<LogSum<Wide<T>>> statistics) {
  std::vector<T> row(at(t.classes));
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const std::span<const T> logits = x.subspan(i * row.size(), row.size());
    T& largest = statistics[i].largest = -std::numeric_limits<T>::infinity();
    for (const T value : logits)
      if (value > largest || std::isnan(value)) largest = std::isnan(largest) ? largest : value;
    T sum = 0;
    for (const T value : logits) sum += std::exp(value - largest);
    statistics[i].log_sum = std::log(sum);
    for (std::size_t j = 0; j < row.size(); ++j) row[j] = statistics[i].log_prob(logits[j]);
    nll_rows<T>(row, {t.index.subspan(i, 1), t.classes, t.ignore_index, t.smoothing},
                losses.subspan(i, 1));
  }
}

template <class T>
void cross_entropy_rows_backward(std::span<const T> x, std::span<const LogSum<Wide<T>>> statistics,
                                 const Targets& t, std::span<const Wide<T>> row_grad,
                                 std::span<T> dx) {
  std::vector<T> row(at(t.classes));
  for (std::size_t i = 0; i < t.index.size(); ++i) {
    for (std::size_t j = 0; j < row.size(); ++j)
      row[j] = statistics[i].log_prob(x[i * row.size() + j]);
    const T grad = grad_of(row_grad, i);
    cross_entropy_backward<T>(row, {t.index.subspan(i, 1), t.classes, t.ignore_index, t.smoothing},
                              {&grad, 1}, dx.subspan(i * row.size(), row.size()));
  }
}

template <class T>
void squared_error(std::span<const T> x, std::span<const T> y, double divisor, std::span<T> loss) {
  if constexpr (std::is_same_v<T, float>)
    if (mode() == Mode::fast) return fast::squared_error(x, y, divisor, loss);
  const T sum = contiguous_sum<T>(static_cast<std::int64_t>(x.size()), [&](std::int64_t i) {
    const T d = x[at(i)] - y[at(i)];
    return d * d;
  });
  loss[0] = sum / static_cast<T>(divisor);
}

template <class T>
void squared_error_backward(std::span<const T> x, std::span<const T> y, T factor,
                            std::span<const T> grad, std::span<T> dx, std::span<T> dy) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const T d = (factor * (x[i] - y[i])) * grad_of(grad, i);
    if (!dx.empty()) dx[i] = d;
    if (!dy.empty()) dy[i] = -d;
  }
}

RINGSMITH_FLOAT_AND_DOUBLE(nll_rows)
RINGSMITH_FLOAT_AND_DOUBLE(reduce_losses)
RINGSMITH_FLOAT_AND_DOUBLE(nll_backward)
RINGSMITH_FLOAT_AND_DOUBLE(cross_entropy_backward)
RINGSMITH_FLOAT_AND_DOUBLE(cross_entropy_rows)
RINGSMITH_FLOAT_AND_DOUBLE(cross_entropy_rows_backward)
RINGSMITH_FLOAT_AND_DOUBLE(squared_error)
RINGSMITH_FLOAT_AND_DOUBLE(squared_error_backward)

}  // namespace ringsmith::kernels::cpu
