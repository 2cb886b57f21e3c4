// Unusual and correct: a scaler that counts down to the next growth, and stores whether the
// gradients were good.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace lab14 {

struct ScalerState {
  float scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;
  std::int64_t growth_tracker = 0;
};

class GradScaler {
 public:
  GradScaler() = default;
  explicit GradScaler(const ScalerState& state) { load(state); }

  void load(const ScalerState& s) {
    std::string wrong;
    if (!(s.scale > 0) || std::isinf(s.scale)) wrong += " scale";
    if (!(s.growth_factor > 1) || std::isinf(s.growth_factor)) wrong += " growth_factor";
    if (!(s.backoff_factor > 0) || !(s.backoff_factor < 1)) wrong += " backoff_factor";
    if (s.growth_interval < 1) wrong += " growth_interval";
    if (s.growth_tracker < 0 || s.growth_tracker >= s.growth_interval) wrong += " growth_tracker";
    if (!wrong.empty()) throw std::invalid_argument("out of range:" + wrong);
    scale_ = s.scale;
    factors_[0] = s.backoff_factor;
    factors_[1] = s.growth_factor;
    interval_ = s.growth_interval;
    left_ = s.growth_interval - s.growth_tracker;
  }
  [[nodiscard]] ScalerState state() const {
    return {scale_, factors_[1], factors_[0], interval_, interval_ - left_};
  }
  [[nodiscard]] float scale(float loss) const { return scale_ * loss; }

  [[nodiscard]] bool unscale(const std::vector<std::span<float>>& gradients) {
    if (good_) throw std::logic_error("twice");
    bool good = true;
    // x - x is 0 for every finite number, and NaN otherwise.
    for (const auto& gradient : gradients)
      for (const float g : gradient) good &= g - g == 0;
    const auto inverse = static_cast<float>(1.0 / static_cast<double>(scale_));
    for (const auto& gradient : gradients)
      for (float& g : gradient) g = inverse * g;
    good_ = good;
    return !good;
  }

  void update() {
    const bool good = good_ ? *good_ : throw std::logic_error("nothing to go by");
    good_.reset();
    left_ = good ? left_ - 1 : interval_;
    if (good && left_ > 0) return;
    left_ = interval_;
    const auto next = static_cast<float>(static_cast<double>(scale_) * factors_[good ? 1 : 0]);
    if (std::isinf(next)) return;
    scale_ = next;
    if (!(scale_ > 0)) throw std::runtime_error("no scale is small enough");
  }

 private:
  float scale_ = 65536;
  double factors_[2] = {0.5, 2};
  std::int64_t interval_ = 2000, left_ = 2000;
  std::optional<bool> good_;  // result of unscale(), until update()
};

}  // namespace lab14
