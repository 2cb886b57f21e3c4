// Lab 17, part 4, open: a hook of your own that sends few bytes.
//
//     this rank's gradient --> your hook, `budget` bytes a step --> the same gradient on all ranks
//
// A place that is not sent must wait, or is lost. A value that waits is old when it arrives. And
// all ranks must know which places they get, which may cost more than the values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hooks.hpp"
#include "labs/17-beyond/group.hpp"
#include "labs/kit/todo.hpp"

namespace lab17 {

// Task 13. Replaces the gradients in the bucket with those that the optimizer will use: the same
// bits on all ranks. Any collectives are allowed. After each step, the bytes that a rank has sent
// since the beginning must be at most `budget` times the number of steps, so a rank may save bytes
// and spend them later. Choose values, places, formats and moments so that a training of 60 steps
// ends with a small loss.
class OwnHook {
 public:
  explicit OwnHook(std::size_t budget) : budget_(budget) {}

  // Called once per step, with the model's only bucket.
  void operator()(Group& group, const Bucket& bucket) {
#ifdef SOLUTION
    const std::size_t count = bucket.data.size(), others = std::size_t(group.world()) - 1;
    sums_.resize(count);
    sent_at_.resize(count);
    for (std::size_t i = 0; i < count; ++i) sums_[i] += bucket.data[i];
    std::ranges::fill(bucket.data, 0.0F);
    ++step_;
    saved_ += budget_;
    // bf16_hook sends 4 bytes to each other rank for every `world` values, rounded up.
    std::size_t length = count - next_;
    if (others > 0) length = std::min(length, saved_ / (4 * others) * (others + 1));
    saved_ -= (length + others) / (others + 1) * 4 * others;
    const Bucket part{bucket.index, bucket.data.subspan(next_, length)};
    for (std::size_t i = 0; i < length; ++i) {
      const std::size_t at = next_ + i;
      const auto age = float(step_ - sent_at_[at]);
      part.data[i] = sums_[at] * std::min(1.0F, kGain / age);
      sums_[at] = 0;
      sent_at_[at] = step_;
    }
    bf16_hook(group, part);
    next_ = (next_ + length) % std::max<std::size_t>(count, 1);
#else
    (void)group, (void)bucket, (void)budget_;
    kit::todo("task 13, OwnHook");
#endif
  }

 private:
  std::size_t budget_;
#ifdef SOLUTION
  // A place waits for all others. The sum of its gradients would be too long a step after that
  // time, and their mean too short.
  static constexpr float kGain = 8;
  std::vector<float> sums_;            // since the place was sent
  std::vector<std::int64_t> sent_at_;  // the step
  std::int64_t step_ = 0;
  std::size_t saved_ = 0;  // bytes
  std::size_t next_ = 0;   // the place to send; all ranks know it, so it costs nothing
#endif
};

}  // namespace lab17
