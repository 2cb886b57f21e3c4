// waits BUCKETS: how long a step waits for the network after its last gradient. Backward takes 96
// ms and completes gradients at an even rate. All gradients take 96 ms on the network, plus 1 ms
// for each of the two messages of a bucket's ring between two ranks.
#include <algorithm>
#include <cstdio>

#include "lessons/arguments.hpp"

namespace {

constexpr double kBackward = 96, kBytes = 96, kAlpha = 1;  // ms

// Returns the time that is left to wait after backward. If print is true, prints a line per
// bucket.
double left_to_wait(int buckets, bool print) {
  double end = 0;
  for (int k = 1; k <= buckets; ++k) {
    const double ready = kBackward * k / buckets, begin = std::max(end, ready);
    end = begin + 2 * kAlpha + kBytes / buckets;
    if (print)
      std::printf("bucket %d  ready %5.1f  begins %5.1f  ends %5.1f\n", k - 1, ready, begin, end);
  }
  return end - kBackward;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    const ringsmith::lessons::Arguments given(argc, argv, "waits [BUCKETS]", 1);
    const double left = left_to_wait(static_cast<int>(given.whole(1, 1, 1, 10'000)), true);
    std::printf("backward ends at %.1f: %.1f ms are left to wait for\n", kBackward, left);
    return 0;
  }
  for (const int buckets : {1, 2, 4, 8, 16, 32})
    std::printf("%2d buckets: %5.1f ms of %5.1f are not hidden\n", buckets,
                left_to_wait(buckets, false), kBytes + 2 * kAlpha * buckets);
}
