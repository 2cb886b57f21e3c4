// What one synchronised backward cost, in seconds since its first gradient: of the host's clock, or
// on a GPU of the stream's, where the same marks are events.
//
//   0 ........ compute_end ........ finished
//        |first launch                |          communication = finished - first launch
//                   |-----------------|          exposed: compute was over, and backward() waited
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/device/stream.hpp"

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
  explicit ReducerClock(Device device) : device_(device) {}
  void restart();
  // Now, or when the current stream gets here; `seconds` must live until settle().
  void mark(double& seconds);
  void settle();  // writes what is still open; waits for the device

 private:
  Device device_;
  std::chrono::steady_clock::time_point start_{};
  Event begin_;
  std::vector<std::pair<double*, Event>> open_;
};

}  // namespace ringsmith
