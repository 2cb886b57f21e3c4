// sweep: the formula of lesson 09, s_k = max(r_k, e_(k-1)), e_k = s_k + T_k, over the bucket cap.
// 96 gradients of 1 MiB arrive evenly in 60 ms of backward; 16 ranks all-reduce them by the ring.
// The buckets are DDP's own.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "lessons/arguments.hpp"
#include "runtime/analysis/cost.hpp"
#include "runtime/parallel/bucket.hpp"

using namespace ringsmith;

namespace {

constexpr int kGradients = 96, kRanks = 16;
constexpr double kBackward = 60, kMib = 1 << 20;  // ms, bytes

double all_reduce(double mib, double alpha_us) {  // ms, on links of 12.5 GB/s
  return 1e3 * comm::ring_all_reduce_time(kRanks, mib * kMib, {alpha_us * 1e-6, 1 / 12.5e9}, 0);
}

void row(const BucketPlan& plan, double alpha_us, std::size_t cap) {
  double end = 0, sum = 0, last = 0;
  int gradients = 0;
  for (const BucketLayout& bucket : plan.buckets) {
    gradients += int(bucket.slots.size());
    const double ready = kBackward * gradients / kGradients;
    last = all_reduce(double(bucket.slots.size()), alpha_us);
    end = std::max(ready, end) + last;
    sum += last;
  }
  const double exposed = end - kBackward;
  std::printf("%4zu %8zu %10.2f %9.2f %12.2f %8.2f %6.0f %%\n", cap, plan.buckets.size(), sum,
              sum - all_reduce(kGradients, 0), last, exposed,
              100 * std::max(1 - exposed / sum, 0.0));
}

}  // namespace

int main(int argc, char** argv) {
  const lessons::Arguments given(argc, argv, "sweep [MICROSECONDS]", 1);
  const double alpha_us = given.real(1, 50, 0, 1e9);
  std::printf(" MiB  buckets  in all, ms  of it latency  last bucket  exposed  hidden\n");
  std::vector<BucketItem> items(kGradients, {Elements(1 << 18), DType::f32});
  std::vector<int> order(kGradients);
  for (int i = 0; i < kGradients; ++i) order[std::size_t(i)] = i;
  for (const std::size_t cap : {1, 2, 3, 4, 8, 16, 32, 96})
    row(rebuilt_plan(items, {MiB(cap), MiB(cap)}, order), alpha_us, cap);
  // The gradients that are ready at t or later take at least one all-reduce, which begins at t at
  // the earliest.
  double least = 0;
  for (int first = 0; first < kGradients; ++first)
    least = std::max(
        least, kBackward * (first + 1) / kGradients + all_reduce(kGradients - first, alpha_us));
  std::printf("whatever the buckets: at least %.2f exposed\n", least - kBackward);
}
