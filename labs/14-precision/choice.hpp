// Lab 14, part 4, open: a rule of your own for the scale of f16 gradients.
//
//     next() --scale--> a step, made or skipped --the largest scaled gradient--> after(largest)
//
// GradScaler learns from overflows only: it doubles until a step is lost. You also see how large
// the gradients are, but never the gradients of the step to come.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "labs/kit/todo.hpp"

namespace lab14 {

// Task 9. A step has a fault if it is skipped, because its largest scaled gradient is infinite in
// f16, or dim: the largest scaled gradient is below 1024, so that f16's range is wasted and small
// gradients become 0 for nothing. Choose scales so that few steps have a fault. Gradients may
// shrink or grow during training, jump, and have single steps that are hundreds of times larger.
class OwnScale {
 public:
  // Returns the scale of the next step: finite, above 0. Called once before each step.
  float next() {
#ifdef SOLUTION
    return scale_;
#else
    kit::todo("task 9, next");
#endif
  }

  // Called once after each step with the largest magnitude of its scaled gradients in f16: infinite
  // if the step was skipped, and 0 if all were too small.
  void after(float largest) {
#ifdef SOLUTION
    if (std::isinf(largest)) {
      if (++skipped_ < 2) return;  // a single large step says nothing about the next one
      recent_.clear();
      scale_ /= 64;
      return;
    }
    skipped_ = 0;
    recent_.push_back(std::log2(std::max(largest, 0x1p-24F) / scale_));
    if (recent_.size() > kRecent) recent_.erase(recent_.begin());
    std::vector<float> sorted = recent_;
    std::ranges::sort(sorted);
    scale_ = std::exp2(std::round(kMiddle - sorted[sorted.size() / 2]));
#else
    (void)largest;
    kit::todo("task 9, after");
#endif
  }
#ifdef SOLUTION

 private:
  static constexpr std::size_t kRecent = 5;  // steps whose median counts
  static constexpr float kMiddle = 13;       // log2 of the middle of 1024 to 65504
  std::vector<float> recent_;                // log2 of the largest unscaled gradients
  float scale_ = 65536;
  int skipped_ = 0;  // in a row
#endif
};

}  // namespace lab14
