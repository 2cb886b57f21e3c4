#include "runtime/base/clock_offset.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"

namespace ringsmith {

ClockOffset estimate_offset(const std::vector<ClockSample>& samples) {
  require(!samples.empty(), "clock offset: no samples");
  const auto trip = [](const ClockSample& s) { return s.received - s.sent; };
  const auto best = std::min_element(
      samples.begin(), samples.end(),
      [&](const ClockSample& a, const ClockSample& b) { return trip(a) < trip(b); });
  require(trip(*best) >= 0, "clock offset: a sample was received before it was sent");
  // sent + trip / 2 and not (sent + received) / 2: the sum of two stamps may overflow.
  return {best->remote - (best->sent + trip(*best) / 2), trip(*best) / 2 + 1};
}

}  // namespace ringsmith
