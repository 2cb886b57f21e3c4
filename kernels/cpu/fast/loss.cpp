#include "kernels/loss.hpp"

#include <algorithm>
#include <cstddef>

#include "kernels/cpu/fast/rows.hpp"
#include "kernels/cpu/fast/vecmath.hpp"

namespace ringsmith::kernels::cpu::fast {

// The gradient of log_softmax, with the one-hot target and smoothing in the same pass.
void cross_entropy_backward(std::span<const float> log_probs, const Targets& t,
                            std::span<const float> row_grad, std::span<float> dx) {
  const auto keep = static_cast<float>(1 - t.smoothing);
  const auto spread = static_cast<float>(t.smoothing / static_cast<double>(t.classes));
  for (std::size_t i = 0; i < t.index.size(); ++i) {
    const float* row = log_probs.data() + i * static_cast<std::size_t>(t.classes);
    float* out = dx.data() + i * static_cast<std::size_t>(t.classes);
    if (t.index[i] == t.ignore_index) {
      std::fill(out, out + t.classes, 0.0F);
      continue;
    }
    const float grad = row_grad[row_grad.size() == 1 ? 0 : i];
    for (std::int64_t j = 0; j < t.classes; ++j) out[j] = grad * (vec::exp(row[j]) - spread);
    out[t.index[i]] -= grad * keep;
  }
}

void squared_error(std::span<const float> x, std::span<const float> y, double divisor,
                   std::span<float> loss) {
  constexpr std::int64_t kBlock = 4096;  // blocks are added in double, to avoid long float sums
  double sum = 0;
  const auto n = static_cast<std::int64_t>(x.size());
  for (std::int64_t first = 0; first < n; first += kBlock) {
    const float* a = x.data() + first;
    const float* b = y.data() + first;
    sum += static_cast<double>(row_sum_of(std::min(kBlock, n - first), [a, b](std::int64_t i) {
      const float d = a[i] - b[i];
      return d * d;
    }));
  }
  loss[0] = static_cast<float>(sum) / static_cast<float>(divisor);
}

}  // namespace ringsmith::kernels::cpu::fast
