// The times of one synchronised backward, in seconds since its first gradient, measured by the
// host's clock, or by stream events on a GPU.
//
//   0 ........ compute_end ........ finished
//        |first launch                |          communication = finished - first launch
//                   |-----------------|          exposed: compute was over, and backward() waited
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/device/device.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith {

struct BucketTimes {
  // When the last gradient of this bucket and of all buckets before it had arrived or, if the
  // calling thread reduces the bucket, when the reduction started.
  double launched = 0;
  // When backward() found the reduction complete; never before compute_end.
  double collected = 0;
};

struct ReducerStatistics {
  std::uint64_t step = 0;  // from 1; 0 before the first backward
  double compute_end = 0;
  double finished = 0;
  std::vector<BucketTimes> buckets;  // sizes and members: Reducer::plan()

  [[nodiscard]] double communication() const {
    return buckets.empty() ? 0 : finished - buckets.front().launched;
  }
  [[nodiscard]] double exposed() const { return finished - compute_end; }
};

// Measures the times. On a GPU, a call records when the current stream reaches it.
class ReducerClock {
 public:
  explicit ReducerClock(Device device) : device_(device) {}

  void begin_backward(std::size_t buckets);
  void launched(std::size_t bucket) { mark(statistics_.buckets[bucket].launched); }
  void collected(std::size_t bucket) { mark(statistics_.buckets[bucket].collected); }
  void compute_ended() { mark(statistics_.compute_end); }
  void finished() { mark(statistics_.finished); }

  // Number of the current or last synchronised backward: 1, 2, ...
  [[nodiscard]] std::uint64_t step() const { return statistics_.step; }
  // On a GPU this blocks until the backward is complete.
  [[nodiscard]] const ReducerStatistics& statistics();

 private:
  void mark(double& seconds);

  Device device_;
  ReducerStatistics statistics_;
  std::chrono::steady_clock::time_point start_{};
  Event begin_;
  std::vector<std::pair<double*, Event>> open_;  // times in statistics_ that are not known yet
};

}  // namespace ringsmith
