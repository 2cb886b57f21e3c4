#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "labs/apps/common/job.hpp"
#include "runtime/device/device.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith::apps {

struct KernelBenchOptions {
  std::string family = "all";
  Device device;
  double seconds = 0.1;  // measuring time per line
  // On the CPU.
  int threads = 1;
  bool oracle = true;
  // On a device.
  std::int64_t mib = 0;   // of each operand of the memory-bound kernels
  std::int64_t size = 0;  // rows and columns of the products; 0: several
  int rung = 0;           // version of matmul to measure; 0: all
  bool check = true;      // on a GPU, fail if a kernel is too slow
};

// bench_on_device() returns false if a checked kernel is too slow.
void bench_on_cpu(const KernelBenchOptions& options);
[[nodiscard]] bool bench_on_device(const KernelBenchOptions& options);

// (m, k) times (k, n).
struct ProductSize {
  std::int64_t m, k, n;
  bool operator==(const ProductSize&) const = default;
};
[[nodiscard]] std::vector<ProductSize> product_sizes(bool emulated);
// The values vary, because constant operands toggle few bits: the chip would draw less power, and
// run at a higher clock rate, than with real data.
[[nodiscard]] Tensor factor_of_product(std::int64_t rows, std::int64_t columns, Device device);

// Input data for the kernels: n numbers from -1 to 1, with period 201.
[[nodiscard]] inline std::vector<float> values(std::int64_t n) {
  std::vector<float> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<float>(static_cast<int>(i * 7919 % 201) - 100) * 0.01F;
  return v;
}

// Returns the median seconds of one run, over samples that fill about `budget` seconds.
// seconds(times): the duration of that many consecutive runs.
[[nodiscard]] inline double median_seconds(const std::function<double(int times)>& seconds,
                                           double budget) {
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
