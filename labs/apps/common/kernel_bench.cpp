#include "labs/apps/common/kernel_bench.hpp"

#include <algorithm>
#include <vector>

namespace ringsmith::apps {

double median_seconds(const std::function<double(int times)>& seconds, double budget) {
  const double once = seconds(1);
  if (once > budget) return once;
  const int inner = std::clamp(static_cast<int>(budget / 20 / once), 1, 100000);
  const int outer = std::clamp(static_cast<int>(budget / (once * inner)), 3, 21);
  std::vector<double> samples;
  samples.reserve(static_cast<std::size_t>(outer));
  for (int i = 0; i < outer; ++i) samples.push_back(seconds(inner) / inner);
  std::nth_element(samples.begin(), samples.begin() + outer / 2, samples.end());
  return samples[static_cast<std::size_t>(outer / 2)];
}

}  // namespace ringsmith::apps
