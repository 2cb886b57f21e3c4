#include "kernels/optim.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/mode.hpp"

namespace ringsmith::kernels::cpu {

namespace {

template <class T>
void sgd_oracle(std::span<T> p, std::span<const T> g, std::span<T> buf, const SgdStep& step) {
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
void adam_oracle(std::span<T> p, std::span<const T> g, std::span<T> m, std::span<T> v,
                 std::span<T> largest, const AdamStep& step) {
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
      // Not std::max: a NaN in either operand must stay.
      if (!(largest[i] >= v[i])) largest[i] = std::isnan(largest[i]) ? largest[i] : v[i];
      second = largest[i];
    }
    const T denominator = std::sqrt(second) / correction + eps;
    p[i] = p[i] - (step_size * m[i]) / denominator;
  }
}

template <class T>
double sum_of_squares_oracle(std::span<const T> x) {
  double sum = 0;
  for (const T value : x) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

template <class T>
void scale_oracle(std::span<T> x, float factor) {
  for (T& value : x) value = value * static_cast<T>(factor);
}

}  // namespace

void sgd(std::span<float> p, std::span<const float> g, std::span<float> buf, const SgdStep& step) {
  mode() == Mode::fast ? fast::sgd(p, g, buf, step) : sgd_oracle(p, g, buf, step);
}
void sgd(std::span<double> p, std::span<const double> g, std::span<double> buf,
         const SgdStep& step) {
  sgd_oracle(p, g, buf, step);
}

void adam(std::span<float> p, std::span<const float> g, std::span<float> m, std::span<float> v,
          std::span<float> largest, const AdamStep& step) {
  mode() == Mode::fast ? fast::adam(p, g, m, v, largest, step)
                       : adam_oracle(p, g, m, v, largest, step);
}
void adam(std::span<double> p, std::span<const double> g, std::span<double> m, std::span<double> v,
          std::span<double> largest, const AdamStep& step) {
  adam_oracle(p, g, m, v, largest, step);
}

void sum_of_squares(std::span<const float> x, std::span<double> sum) {
  sum[0] = mode() == Mode::fast ? fast::sum_of_squares(x) : sum_of_squares_oracle(x);
}
void sum_of_squares(std::span<const double> x, std::span<double> sum) {
  sum[0] = sum_of_squares_oracle(x);
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

void scale(std::span<float> x, std::span<const float> factor) {
  mode() == Mode::fast ? fast::scale(x, factor[0]) : scale_oracle(x, factor[0]);
}
void scale(std::span<double> x, std::span<const float> factor) { scale_oracle(x, factor[0]); }

}  // namespace ringsmith::kernels::cpu
