// No history: the scale follows the last step, quickly upwards and slowly downwards, so that one
// large step lowers it by two powers of two only.
#pragma once

#include <cmath>

#include "labs/kit/todo.hpp"

namespace lab14 {

class OwnScale {
 public:
  float next() { return std::ldexp(1.0F, exponent_); }
  void after(float largest) {
    if (std::isinf(largest)) {
      exponent_ -= skipped_ ? 5 : 1;
      skipped_ = true;
      return;
    }
    skipped_ = false;
    int power = -24;
    if (largest > 0) std::frexp(largest, &power);
    const int change = kWanted - power;
    exponent_ += change < -2 ? -2 : change;
  }

 private:
  static constexpr int kWanted = 14;
  int exponent_ = 16;
  bool skipped_ = false;
};

}  // namespace lab14
