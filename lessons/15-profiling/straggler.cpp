// straggler: three ranks, one of which arrives 10 ms late at every all-reduce. The clocks of
// ranks 1 and 2 are set wrong by hand, and rank 0 asks both for their time. Sleeps, messages and
// stamps are real.
#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "labs/apps/train/trace_file.hpp"
#include "lessons/09-ddp/ranks.hpp"
#include "runtime/base/tracer.hpp"

using namespace ringsmith;
using Ms = std::chrono::duration<double, std::milli>;

namespace {

constexpr int kRanks = 3, kSteps = 15, kExchanges = 15, kSlow = 2;
constexpr double kWrong[] = {0, -50, -50};           // ms: how each rank's clock is set
constexpr double kQueueOnTheWayBack[] = {0, 60, 0};  // ms, at most: see exchange()

double clock_of(int rank) { return double(trace::now_ns()) * 1e-6 + kWrong[rank]; }
void pause(double ms) { std::this_thread::sleep_for(Ms(ms)); }

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Offset {
  double mean = 0, shortest = 0, uncertainty = 0;  // ms
};

// Rank 0 asks, the peer answers with its clock. Rank 1's link back to rank 0 is busy: four of
// five answers queue there.
Offset exchange(comm::ProcessGroup& group, int peer) {
  std::vector<apps::ClockSample> samples;
  double sum = 0;
  std::array<std::int64_t, 1> stamp{};
  for (int i = 0; i < kExchanges; ++i) {
    if (group.rank() == peer) {
      group.recv(std::span<std::int64_t>(stamp), 0);
      stamp[0] = std::int64_t(clock_of(peer) * 1e6);
      pause(kQueueOnTheWayBack[peer] * (i % 5) / 4);
      group.send(std::span<const std::int64_t>(stamp), 0);
    } else if (group.rank() == 0) {
      const auto sent = std::int64_t(clock_of(0) * 1e6);
      group.send(std::span<const std::int64_t>(stamp), peer);
      group.recv(std::span<std::int64_t>(stamp), peer);
      samples.push_back({sent, stamp[0], std::int64_t(clock_of(0) * 1e6)});
      sum += double(samples.back().remote) -
             (double(samples.back().sent) + double(samples.back().received)) / 2;
    }
  }
  if (group.rank() != 0) return {};
  const apps::ClockOffset best = apps::estimate_offset(samples);
  return {sum * 1e-6 / kExchanges, double(best.offset_ns) * 1e-6,
          double(best.uncertainty_ns) * 1e-6};
}

struct Stamps {
  std::array<double, kSteps> begin{}, end{};
};

// Returns the median arrival of each rank, in ms after the first rank's arrival in the same step.
std::array<double, kRanks> arrivals(const std::array<Stamps, kRanks>& stamps,
                                    const std::array<double, kRanks>& offsets) {
  std::array<std::vector<double>, kRanks> after;
  for (std::size_t step = 0; step < kSteps; ++step) {
    std::array<double, kRanks> at{};
    for (std::size_t r = 0; r < kRanks; ++r) at[r] = stamps[r].begin[step] - offsets[r];
    for (std::size_t r = 0; r < kRanks; ++r)
      after[r].push_back(at[r] - *std::ranges::min_element(at));
  }
  std::array<double, kRanks> out{};
  for (std::size_t r = 0; r < kRanks; ++r) out[r] = median(after[r]);
  return out;
}

}  // namespace

int main() {
  std::array<Stamps, kRanks> stamps;
  std::array<Offset, kRanks> offsets;
  on_ranks(
      kRanks,
      [&](const Group& group) -> std::string {
        const int rank = group->rank();
        std::array<float, 1> value{1};
        group->all_reduce(std::span<float>(value));  // the first one opens connections
        for (std::size_t step = 0; step < kSteps; ++step) {
          pause(rank == kSlow ? 12 : 2);  // it computes
          stamps[std::size_t(rank)].begin[step] = clock_of(rank);
          group->all_reduce(std::span<float>(value));
          stamps[std::size_t(rank)].end[step] = clock_of(rank);
        }
        for (int peer = 1; peer < kRanks; ++peer) {
          if (rank != 0 && rank != peer) continue;
          const Offset offset = exchange(*group, peer);
          if (rank == 0) offsets[std::size_t(peer)] = offset;
        }
        return "";
      },
      false);

  std::array<double, kRanks> none{}, mean{}, shortest{};
  for (std::size_t r = 1; r < kRanks; ++r) {
    mean[r] = offsets[r].mean;
    shortest[r] = offsets[r].shortest;
    std::printf(
        "clock of rank %zu - clock of rank 0: %.1f ms; mean of %d exchanges %.1f, shortest %.1f +- "
        "%.1f\n",
        r, kWrong[r], kExchanges, mean[r], shortest[r], offsets[r].uncertainty);
  }
  const std::array<std::array<double, kRanks>, 3> arrived = {
      arrivals(stamps, none), arrivals(stamps, mean), arrivals(stamps, shortest)};
  std::printf("        all-reduce  arrives, by the stamps  by the mean  by the shortest\n");
  for (std::size_t r = 0; r < kRanks; ++r) {
    std::vector<double> lasts;
    for (std::size_t step = 0; step < kSteps; ++step)
      lasts.push_back(stamps[r].end[step] - stamps[r].begin[step]);
    std::printf("rank %zu  %7.1f ms  %21.1f  %11.1f  %15.1f\n", r, median(lasts), arrived[0][r],
                arrived[1][r], arrived[2][r]);
  }
  std::printf("last    %34s", "");
  for (const auto& at : arrived)
    std::printf("rank %zu  ", std::size_t(std::ranges::max_element(at) - at.begin()));
  std::printf("\n");
}
