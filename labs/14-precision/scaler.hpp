// Lab 14, part 2: a scale that keeps small gradients of f16 from becoming zero.
//
//     loss * scale --backward--> gradients * scale --unscale--> gradients, or "one is not finite"
//                                                                  |             |
//                                                                 step      skip the step
//                                                                  |             |
//     update()      after growth_interval steps in a row: scale * growth_factor  |
//                                                         scale * backoff_factor, count from 0
//
// The rules and the defaults follow torch.cuda.amp.GradScaler.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "labs/kit/todo.hpp"

namespace lab14 {

// The complete state of a scaler between two steps.
struct ScalerState {
  float scale = 65536;                  // finite, above 0
  double growth_factor = 2;             // finite, above 1
  double backoff_factor = 0.5;          // between 0 and 1, exclusive
  std::int64_t growth_interval = 2000;  // 1 or more
  std::int64_t growth_tracker = 0;      // good steps in a row, from 0 to growth_interval - 1
};

class GradScaler {
 public:
  explicit GradScaler(const ScalerState& state = {}) { load(state); }

  // Task 3. Continues exactly like the scaler that had this state. Throws std::invalid_argument,
  // and changes nothing, if a number is outside the ranges above. As in PyTorch, it does not end a
  // step: what unscale() has found before it still counts at the next update().
  void load(const ScalerState& state) {
#ifdef SOLUTION
    const auto require = [](bool truth, const char* message) {
      if (!truth) throw std::invalid_argument(message);
    };
    require(std::isfinite(state.scale) && state.scale > 0, "the scale must be finite and above 0");
    require(std::isfinite(state.growth_factor) && state.growth_factor > 1,
            "growth_factor must be finite and above 1");
    require(state.backoff_factor > 0 && state.backoff_factor < 1,
            "backoff_factor must lie between 0 and 1");
    require(state.growth_interval >= 1, "growth_interval must be 1 or more");
    require(state.growth_tracker >= 0 && state.growth_tracker < state.growth_interval,
            "growth_tracker must be 0 or more, and below growth_interval");
    state_ = state;
#else
    (void)state;
    kit::todo("task 3, load");
#endif
  }

  // Also task 3.
  [[nodiscard]] ScalerState state() const {
#ifdef SOLUTION
    return state_;
#else
    kit::todo("task 3, state");
#endif
  }

  // Also task 3. Returns loss times the scale.
  [[nodiscard]] float scale(float loss) const {
#ifdef SOLUTION
    return loss * state_.scale;
#else
    (void)loss;
    kit::todo("task 3, scale");
#endif
  }

  // Task 4. Multiplies each gradient of each parameter by float(1 / double(scale)). Returns true if
  // any gradient was infinite or NaN before the multiplication, in which case the step must be
  // skipped. A second call before update() throws std::logic_error and changes nothing.
  [[nodiscard]] bool unscale(const std::vector<std::span<float>>& gradients) {
#ifdef SOLUTION
    if (looked_) throw std::logic_error("unscale: already done since the last update()");
    const auto inverse = float(1 / double(state_.scale));
    looked_ = true;
    found_ = false;
    for (const std::span<float> gradient : gradients)
      for (float& g : gradient) {
        found_ = found_ || !std::isfinite(g);
        g *= inverse;
      }
    return found_;
#else
    (void)gradients;
    kit::todo("task 4, unscale");
#endif
  }

  // Also task 4. Ends a step, made or skipped. The new scale is computed in double and rounded to
  // float. If it would grow to infinity, the scale stays and the count of steps restarts at 0.
  // Throws std::logic_error if there was no unscale() since the last update(), and
  // std::runtime_error if the scale has fallen to 0; the step has ended then, too, and the scale
  // is 0 until load().
  void update() {
#ifdef SOLUTION
    if (!looked_) throw std::logic_error("update: no unscale() since the last one");
    looked_ = false;
    if (found_) {
      state_.growth_tracker = 0;
      state_.scale = float(double(state_.scale) * state_.backoff_factor);
      if (state_.scale == 0)
        throw std::runtime_error("the scale has fallen to 0: gradients are not finite at any");
    } else if (++state_.growth_tracker == state_.growth_interval) {
      state_.growth_tracker = 0;
      const auto grown = float(double(state_.scale) * state_.growth_factor);
      if (std::isfinite(grown)) state_.scale = grown;
    }
#else
    kit::todo("task 4, update");
#endif
  }
#ifdef SOLUTION

 private:
  ScalerState state_;
  bool looked_ = false;  // unscale() was called since the last update()
  bool found_ = false;
#endif
};

}  // namespace lab14
