// How far apart are two clocks? From ping-pongs, as NTP does it:
//
//   here    t0 ------.            .---> t1
//   there             '--> t ----'
//
// The remote stamp t was taken at some moment of [t0, t1], so offset = t - (t0 + t1) / 2 is right
// within (t1 - t0) / 2. The round with the shortest trip bounds it best.
#pragma once

#include <cstdint>
#include <vector>

namespace ringsmith {

struct ClockSample {
  std::int64_t sent = 0;      // here
  std::int64_t remote = 0;    // there
  std::int64_t received = 0;  // here
};

struct ClockOffset {
  std::int64_t offset_ns = 0;       // remote clock - own clock
  std::int64_t uncertainty_ns = 0;  // half of the shortest round trip
  // True if both may be one clock: 0 lies within the uncertainty.
  [[nodiscard]] bool may_be_zero() const {
    return offset_ns <= uncertainty_ns && -offset_ns <= uncertainty_ns;
  }
};

// UsageError without samples or if one was received before it was sent.
[[nodiscard]] ClockOffset estimate_offset(const std::vector<ClockSample>& samples);

}  // namespace ringsmith
