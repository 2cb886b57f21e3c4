#include "runtime/base/intervals.hpp"

#include <algorithm>

namespace ringsmith {

Intervals unite(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](Interval a, Interval b) { return a.begin < b.begin; });
  Intervals out;
  for (const Interval i : intervals) {
    if (i.end <= i.begin) continue;
    if (!out.empty() && i.begin <= out.back().end)
      out.back().end = std::max(out.back().end, i.end);
    else
      out.push_back(i);
  }
  return out;
}

Intervals subtract(const Intervals& a, const Intervals& b) {
  Intervals out;
  std::size_t j = 0;
  for (Interval rest : a) {
    while (j < b.size() && b[j].end <= rest.begin) ++j;
    // b[j] may reach into the next interval of a as well, so j stays on the last one used.
    for (std::size_t k = j; k < b.size() && b[k].begin < rest.end; ++k) {
      if (b[k].begin > rest.begin) out.push_back({rest.begin, b[k].begin});
      rest.begin = std::max(rest.begin, b[k].end);
    }
    if (rest.begin < rest.end) out.push_back(rest);
  }
  return out;
}

Intervals clip(const Intervals& a, Interval window) {
  Intervals out;
  for (const Interval i : a) {
    const Interval part{std::max(i.begin, window.begin), std::min(i.end, window.end)};
    if (part.begin < part.end) out.push_back(part);
  }
  return out;
}

std::int64_t length(const Intervals& a) {
  std::int64_t sum = 0;
  for (const Interval i : a) sum += i.end - i.begin;
  return sum;
}

}  // namespace ringsmith
