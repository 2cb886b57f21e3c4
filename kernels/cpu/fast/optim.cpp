// The compiler vectorises every loop, because choices (first step, Nesterov, amsgrad) are template
// parameters.
#include "kernels/optim.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace ringsmith::kernels::cpu::fast {

namespace {

// Returns a * b + c, with one rounding if the processor has such an instruction. If the loops
// contained the plain expression, clang 19 would contract it in a loop's vector body but not in its
// remainder, and an element's bits would depend on its position in a shard.
inline float fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

template <bool kFirst, bool kNesterov>
void momentum_loop(std::int64_t n, float* __restrict p, const float* __restrict g,
                   float* __restrict buf, float lr, float momentum, float fresh, float decay) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float d = fused(decay, p[i], g[i]);
    const float b = kFirst ? d : fused(momentum, buf[i], fresh * d);
    buf[i] = b;
    p[i] = fused(-lr, kNesterov ? fused(momentum, b, d) : b, p[i]);
  }
}

template <bool kAmsgrad>
void adam_loop(std::int64_t n, float* __restrict p, const float* __restrict g, float* __restrict m,
               float* __restrict v, float* __restrict largest, const AdamStep& step) {
  const double steps = static_cast<double>(step.t);
  const auto step_size = static_cast<float>(step.lr / (1 - std::pow(step.beta1, steps)));
  const auto correction = static_cast<float>(1 / std::sqrt(1 - std::pow(step.beta2, steps)));
  const auto beta1 = static_cast<float>(step.beta1), fresh1 = static_cast<float>(1 - step.beta1);
  const auto beta2 = static_cast<float>(step.beta2), fresh2 = static_cast<float>(1 - step.beta2);
  const auto eps = static_cast<float>(step.eps);
  const auto decay = step.decoupled ? 0.0F : static_cast<float>(step.weight_decay);
  const auto shrink = step.decoupled ? static_cast<float>(1 - step.lr * step.weight_decay) : 1.0F;
  for (std::int64_t i = 0; i < n; ++i) {
    const float d = fused(decay, p[i], g[i]);
    const float mean = fused(beta1, m[i], fresh1 * d);
    float second = fused(beta2, v[i], fresh2 * d * d);
    m[i] = mean;
    v[i] = second;
    if constexpr (kAmsgrad) {
      // The old maximum wins if it is larger or NaN. A NaN in v wins over a number.
      const float old = largest[i];
      second = second <= old || old != old ? old : second;
      largest[i] = second;
    }
    const float scale = fused(std::sqrt(second), correction, eps);
    p[i] = fused(p[i], shrink, -(step_size * mean / scale));
  }
}

}  // namespace

void sgd(std::span<float> p, std::span<const float> g, std::span<float> buf, const SgdStep& step) {
  const auto n = static_cast<std::int64_t>(p.size());
  const auto lr = static_cast<float>(step.lr);
  const auto decay = static_cast<float>(step.weight_decay);
  if (step.momentum == 0) {
    float* __restrict out = p.data();
    const float* __restrict in = g.data();
    for (std::int64_t i = 0; i < n; ++i) out[i] = fused(-lr, fused(decay, out[i], in[i]), out[i]);
    return;
  }
  const auto loop =
      step.first ? (step.nesterov ? momentum_loop<true, true> : momentum_loop<true, false>)
                 : (step.nesterov ? momentum_loop<false, true> : momentum_loop<false, false>);
  loop(n, p.data(), g.data(), buf.data(), lr, static_cast<float>(step.momentum),
       static_cast<float>(1 - step.dampening), decay);
}

void adam(std::span<float> p, std::span<const float> g, std::span<float> m, std::span<float> v,
          std::span<float> largest, const AdamStep& step) {
  const auto n = static_cast<std::int64_t>(p.size());
  const auto loop = largest.empty() ? adam_loop<false> : adam_loop<true>;
  loop(n, p.data(), g.data(), m.data(), v.data(), largest.data(), step);
}

// Adds in double, because in float the square of 1e20 would be infinite and the square of 1e-25
// zero.
void sum_of_squares(std::span<const float> x, std::span<double> sum) {
  constexpr std::size_t kLanes = 32;
  const auto square = [](float v) { return static_cast<double>(v) * static_cast<double>(v); };
  std::array<double, kLanes> lane{};
  std::size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes)
    for (std::size_t k = 0; k < kLanes; ++k) lane[k] += square(x[i + k]);
  double total = 0;
  for (const double part : lane) total += part;
  for (; i < x.size(); ++i) total += square(x[i]);
  sum[0] = total;
}

void scale(std::span<float> x, std::span<const float> factor) {
  const float by = factor[0];
  for (float& value : x) value *= by;
}

}  // namespace ringsmith::kernels::cpu::fast
