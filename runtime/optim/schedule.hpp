// Learning-rate schedules: pure functions of the step number, counted from 0. There is no state to
// save: a resumed run asks for the same step and gets the same rate.
//
//   warm-up         cosine                    rate
//      /------------\__                       peak
//     /                \__
//    /                    \___________        floor
//   0      warmup            total            step
#pragma once

#include <cstdint>
#include <functional>

namespace ringsmith {

using LrSchedule = std::function<double(std::int64_t step)>;

[[nodiscard]] LrSchedule constant_lr(double lr);

// peak (step + 1) / warmup until step = warmup - 1, then peak. warmup = 0: no warm-up.
[[nodiscard]] LrSchedule warmup_lr(double peak, std::int64_t warmup);

// After the warm-up, half a cosine from peak at step = warmup to floor at step = total and after.
[[nodiscard]] LrSchedule cosine_lr(double peak, std::int64_t warmup, std::int64_t total,
                                   double floor = 0);

// lr gamma^(step / every), in whole periods of `every` steps.
[[nodiscard]] LrSchedule step_lr(double lr, std::int64_t every, double gamma = 0.1);

}  // namespace ringsmith
