#include "runtime/optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "runtime/base/error.hpp"

namespace ringsmith {
namespace {

void check_rate(const char* what, double lr) {
  require(std::isfinite(lr) && lr >= 0, std::string("schedule: ") + what +
                                            " must be finite and not negative, got " +
                                            std::to_string(lr));
}

}  // namespace

LrSchedule constant_lr(double lr) {
  check_rate("lr", lr);
  return [lr](std::int64_t) { return lr; };
}

LrSchedule warmup_lr(double peak, std::int64_t warmup) {
  check_rate("peak", peak);
  require(warmup >= 0, "schedule: warm-up must not be negative, got " + std::to_string(warmup));
  return [=](std::int64_t step) {
    if (step >= warmup) return peak;
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  };
}

LrSchedule cosine_lr(double peak, std::int64_t warmup, std::int64_t total, double floor) {
  check_rate("floor", floor);
  require(total > warmup, "schedule: " + std::to_string(total) + " steps leave nothing after a " +
                              "warm-up of " + std::to_string(warmup) +
                              "; train longer or warm up for fewer steps");
  return [=, rise = warmup_lr(peak, warmup)](std::int64_t step) {
    if (step < warmup) return rise(step);
    const double done =
        static_cast<double>(std::min(step, total) - warmup) / static_cast<double>(total - warmup);
    return floor + (peak - floor) * (1 + std::cos(std::numbers::pi * done)) / 2;
  };
}

LrSchedule step_lr(double lr, std::int64_t every, double gamma) {
  check_rate("lr", lr);
  check_rate("gamma", gamma);
  require(every >= 1, "schedule: a period must have at least 1 step, got " + std::to_string(every));
  return [=](std::int64_t step) {
    const std::int64_t period = step / every;
    return lr * std::pow(gamma, static_cast<double>(period));
  };
}

}  // namespace ringsmith
