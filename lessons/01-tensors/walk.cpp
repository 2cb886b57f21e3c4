// walk: the same 4 million numbers, summed in the order of memory and across it.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "runtime/tensor/tensor.hpp"

using namespace ringsmith;

// The oracle's way to visit a matrix: two loops, and addresses computed from the strides.
double total(const Tensor& t) {
  const float* values = t.data<float>();
  const std::int64_t down = t.strides()[0], right = t.strides()[1];
  double sum = 0;
  for (std::int64_t i = 0; i < t.size(0); ++i)
    for (std::int64_t j = 0; j < t.size(1); ++j) sum += values[i * down + j * right];
  return sum;
}

void measure(const char* name, const Tensor& t) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9, sum = 0;
  for (int run = 0; run < 5; ++run) {
    const auto begin = Clock::now();
    sum = total(t);
    best = std::min(best, std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  std::printf("%-16s strides %-10s sum %.0f  %7.2f ms\n", name, to_string(t.strides()).c_str(), sum,
              best);
}

int main() {
  const Tensor m = full({2048, 2048}, 1.0);
  measure("m", m);
  measure("m.transpose(0,1)", m.transpose(0, 1));
  measure("contiguous()", m.transpose(0, 1).contiguous());
}
