// The oracles of the optimizer steps. In Mode::fast, those with a fast version call it.
#include "kernels/optim.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "kernels/mode.hpp"

namespace ringsmith::kernels::cpu {

template <class T>
void sgd(std::span<T> p, std::span<const T> g, std::span<T> buf, const SgdStep& step) {
  if constexpr (std::is_same_v<T, float>)
    if (mode() == Mode::fast) return fast::sgd(p, g, buf, step);
  const T lr = static_cast<T>(step.lr);
  const T momentum = static_cast<T>(step.momentum);
  const T fresh = static_cast<T>(1 - step.dampening);
  const T decay = static_cast<T>(step.weight_decay);
  for (std::size_t i = 0; i < p.size(); ++i) {
    T d = g[i];
    if (step.weight_decay != 0) d = d + decay * p[i];
    if (step.momentum != 0) {
      buf[i] = step.first ? d : momentum * buf[i] + fresh * d;
      d = step.nesterov ? d + momentum * buf[i] : buf[i];
    }
    p[i] = p[i] - lr * d;
  }
}

template <class T>
void adam(std::span<T> p, std::span<const T> g, std::span<T> m, std::span<T> v,
          std::span<T> largest, const AdamStep& step) {
  if constexpr (std::is_same_v<T, float>)
    if (mode() == Mode::fast) return fast::adam(p, g, m, v, largest, step);
  const double steps = static_cast<double>(step.t);
  const T step_size = static_cast<T>(step.lr / (1 - std::pow(step.beta1, steps)));
  const T correction = static_cast<T>(std::sqrt(1 - std::pow(step.beta2, steps)));
  const T beta1 = static_cast<T>(step.beta1), fresh1 = static_cast<T>(1 - step.beta1);
  const T beta2 = static_cast<T>(step.beta2), fresh2 = static_cast<T>(1 - step.beta2);
  const T eps = static_cast<T>(step.eps);
  const T decay = static_cast<T>(step.weight_decay);
  const T shrink = static_cast<T>(1 - step.lr * step.weight_decay);
  for (std::size_t i = 0; i < p.size(); ++i) {
    T d = g[i];
    if (step.decoupled)
      p[i] = p[i] * shrink;
    else if (step.weight_decay != 0)
      d = d + decay * p[i];
    m[i] = beta1 * m[i] + fresh1 * d;
    v[i] = beta2 * v[i] + (fresh2 * d) * d;
    T second = v[i];
    if (!largest.empty()) {
      // Keeps a NaN in either operand, unlike std::max.
      if (!(largest[i] >= v[i])) largest[i] = std::isnan(largest[i]) ? largest[i] : v[i];
      second = largest[i];
    }
    const T denominator = std::sqrt(second) / correction + eps;
    p[i] = p[i] - (step_size * m[i]) / denominator;
  }
}

template <class T>
void adam_all(std::span<const AdamTensor<T>> tensors, const AdamStep& step) {
  for (const AdamTensor<T>& t : tensors) adam<T>(t.p, t.g, t.m, t.v, t.largest, step);
}

template <class T>
void adam_clocked(std::span<const AdamTensor<T>> tensors, std::span<const std::int32_t> which,
                  std::span<AdamClock> clocks, std::span<const double> lr, const AdamStep& step) {
  AdamStep now = step;
  now.lr = lr[0];
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    AdamClock& clock = clocks[static_cast<std::size_t>(which[i])];
    clock.t += 1;
    clock.step_size = now.lr / (1 - std::pow(now.beta1, clock.t));
    clock.correction = std::sqrt(1 - std::pow(now.beta2, clock.t));
    clock.shrink = 1 - now.lr * now.weight_decay;
    now.t = static_cast<std::int64_t>(clock.t);
    const AdamTensor<T>& t = tensors[i];
    adam<T>(t.p, t.g, t.m, t.v, t.largest, now);
  }
}

template <class T>
void sum_of_squares(std::span<const T> x, std::span<double> sum) {
  if constexpr (std::is_same_v<T, float>)
    if (mode() == Mode::fast) return fast::sum_of_squares(x, sum);
  double total = 0;
  for (const T value : x) total += static_cast<double>(value) * static_cast<double>(value);
  sum[0] = total;
}

void clip_factor(std::span<const double> sums, double max_norm, std::span<float> norm,
                 std::span<float> factor) {
  double squares = 0;
  for (const double sum : sums) {
    const auto root = static_cast<float>(std::sqrt(sum));
    squares += static_cast<double>(root) * static_cast<double>(root);
  }
  norm[0] = static_cast<float>(std::sqrt(squares));
  const float wanted = static_cast<float>(max_norm) / (norm[0] + 1e-6F);
  factor[0] = wanted > 1 ? 1 : wanted;  // NaN stays NaN
}

template <class T>
void scale(std::span<T> x, std::span<const float> factor) {
  if constexpr (std::is_same_v<T, float>)
    if (mode() == Mode::fast) return fast::scale(x, factor);
  const T by = static_cast<T>(factor[0]);
  for (T& value : x) value = value * by;
}

template <class T>
void unscale(std::span<T> g, float factor, std::span<std::int32_t> found) {
  const T by = static_cast<T>(factor);
  std::int32_t bad = 0;  // or-ed without a branch, so that the loop is vectorised
  for (T& value : g) {
    value = value * by;
    bad |= static_cast<std::int32_t>(!(std::abs(value) <= std::numeric_limits<T>::max()));
  }
  if (bad != 0) found[0] = 1;
}

RINGSMITH_FLOAT_AND_DOUBLE(unscale)
RINGSMITH_FLOAT_AND_DOUBLE(sgd)
RINGSMITH_FLOAT_AND_DOUBLE(adam)
RINGSMITH_FLOAT_AND_DOUBLE(adam_all)
RINGSMITH_FLOAT_AND_DOUBLE(adam_clocked)
RINGSMITH_FLOAT_AND_DOUBLE(sum_of_squares)
RINGSMITH_FLOAT_AND_DOUBLE(scale)

}  // namespace ringsmith::kernels::cpu
