// What one synchronised backward cost, in seconds since its first gradient.
//
//   0 ........ compute_end ........ finished
//        |first launch                |          communication = finished - first launch
//                   |-----------------|          exposed: compute was over, and backward() waited
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "runtime/base/units.hpp"

namespace ringsmith {

struct BucketTimes {
  double launched = 0;   // its last gradient had arrived, and all earlier buckets were launched
  double collected = 0;  // backward() saw it complete: no earlier than compute_end
};

struct ReducerStatistics {
  std::uint64_t step = 0;  // 1 for the first; 0 before it
  double compute_end = 0;
  double finished = 0;
  std::vector<BucketTimes> buckets;  // sizes and members: Reducer::plan()

  [[nodiscard]] double communication() const {
    return buckets.empty() ? 0 : finished - buckets.front().launched;
  }
  [[nodiscard]] double exposed() const { return finished - compute_end; }
};

// Seconds since restart().
class ReducerClock {
 public:
  void restart() { start_ = std::chrono::steady_clock::now(); }
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_{};
};

}  // namespace ringsmith
