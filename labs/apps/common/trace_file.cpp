#include "labs/apps/common/trace_file.hpp"

#include <array>
#include <cstdint>
#include <fmt/format.h>
#include <span>

#include "labs/apps/common/agreement.hpp"
#include "runtime/base/trace_json.hpp"
#include "runtime/checkpoint/atomic_file.hpp"

namespace ringsmith::apps {

namespace {

constexpr int kPingPongs = 20;

// Rank 0 asks, the peer answers with its clock.
ClockOffset measure_peer(comm::ProcessGroup& group, int peer) {
  std::vector<ClockSample> samples;
  std::array<std::int64_t, 1> stamp{};
  for (int i = 0; i < kPingPongs; ++i) {
    if (group.rank() == 0) {
      ClockSample s;
      s.sent = trace::now_ns();
      stamp[0] = s.sent;
      group.send(std::span<const std::int64_t>(stamp), peer);
      group.recv(std::span<std::int64_t>(stamp), peer);
      s.received = trace::now_ns();
      s.remote = stamp[0];
      samples.push_back(s);
    } else {
      group.recv(std::span<std::int64_t>(stamp), 0);
      stamp[0] = trace::now_ns();
      group.send(std::span<const std::int64_t>(stamp), 0);
    }
  }
  if (group.rank() != 0) return {};
  ClockOffset offset = estimate_offset(samples);
  if (offset.may_be_zero()) offset.offset_ns = 0;
  return offset;
}

// Texts of different lengths, one after the other: rank 0 returns all, the others none.
std::vector<std::string> gather_texts(comm::ProcessGroup& group, const std::string& mine) {
  std::array<std::int64_t, 1> length{static_cast<std::int64_t>(mine.size())};
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(group.size()));
  group.all_gather(std::span<const std::int64_t>(length), std::span<std::int64_t>(lengths));
  if (group.rank() != 0) {
    group.send(std::span(reinterpret_cast<const std::uint8_t*>(mine.data()), mine.size()), 0);
    return {};
  }
  std::vector<std::string> out{mine};
  for (int r = 1; r < group.size(); ++r) {
    std::string text(static_cast<std::size_t>(lengths[static_cast<std::size_t>(r)]), '\0');
    group.recv(std::span(reinterpret_cast<std::uint8_t*>(text.data()), text.size()), r);
    out.push_back(std::move(text));
  }
  return out;
}

}  // namespace

std::vector<ClockOffset> clock_offsets(comm::ProcessGroup& group) {
  std::vector<ClockOffset> offsets(static_cast<std::size_t>(group.size()));
  for (int peer = 1; peer < group.size(); ++peer)
    if (group.rank() == 0 || group.rank() == peer)
      offsets[static_cast<std::size_t>(peer)] = measure_peer(group, peer);
  // The peers learn their own offset from rank 0, which alone has both stamps.
  for (auto& o : offsets) {
    std::array<std::int64_t, 2> pair{o.offset_ns, o.uncertainty_ns};
    group.broadcast(std::span<std::int64_t>(pair), 0);
    o = {pair[0], pair[1]};
  }
  return offsets;
}

void write_trace(comm::ProcessGroup& group, const StepClock& clock, const std::string& path) {
  const auto offsets = clock_offsets(group);
  const auto& events = clock.events();
  std::array<std::int64_t, 1> origin{events.empty() ? trace::now_ns() : events.front().begin_ns};
  group.broadcast(std::span<std::int64_t>(origin), 0);

  trace::RankTrace mine;
  mine.rank = group.rank();
  mine.origin_ns = origin[0];
  mine.clock_offset_ns = offsets[static_cast<std::size_t>(group.rank())].offset_ns;
  mine.events = events;
  mine.thread_names = trace::thread_names();
  const auto fragments = gather_texts(group, trace::chrome_events(mine));

  together(group, [&] {
    if (group.rank() != 0) return;
    std::vector<std::pair<std::string, std::string>> notes = {
        {"world", std::to_string(group.size())},
        {"events not kept on rank 0", std::to_string(clock.lost())}};
    for (std::size_t r = 1; r < offsets.size(); ++r)
      notes.emplace_back(fmt::format("clock of rank {} - clock of rank 0", r),
                         fmt::format("{} ns, measured within {} ns", offsets[r].offset_ns,
                                     offsets[r].uncertainty_ns));
    const std::string json = trace::chrome_trace(fragments, notes);
    AtomicFile file(path);
    file.write(std::as_bytes(std::span(json)));
    file.commit();
  });
}

}  // namespace ringsmith::apps
