#include "labs/apps/train/trace_file.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

#include "labs/apps/common/agreement.hpp"
#include "runtime/base/atomic_file.hpp"

namespace ringsmith::apps {

namespace {

constexpr int kPingPongs = 20;

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

// After weeks of uptime, microseconds in a double would lose the nanoseconds.
std::string microseconds(std::int64_t ns) {
  const std::int64_t size = std::llabs(ns);
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", size / 1000, size % 1000);
}

}  // namespace

ClockOffset estimate_offset(const std::vector<ClockSample>& samples) {
  require(!samples.empty(), "clock offset: no samples");
  const auto trip = [](const ClockSample& s) { return s.received - s.sent; };
  const auto best = std::ranges::min_element(samples, {}, trip);
  require(trip(*best) >= 0, "clock offset: a sample was received before it was sent");
  // Does not add the two stamps, because their sum may overflow.
  return {best->remote - (best->sent + trip(*best) / 2), trip(*best) / 2 + 1};
}

std::string chrome_events(const RankTrace& trace) {
  std::string out;
  auto to = std::back_inserter(out);
  fmt::format_to(
      to,
      R"({{"ph":"M","name":"process_name","pid":{0},"tid":0,"args":{{"name":"rank {0}"}}}},
{{"ph":"M","name":"process_sort_index","pid":{0},"tid":0,"args":{{"sort_index":{0}}}}})",
      trace.rank);
  for (std::size_t t = 0; t < trace.thread_names.size(); ++t)
    fmt::format_to(to,
                   ",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},"
                   "\"args\":{{\"name\":{}}}}}",
                   trace.rank, t, quoted(trace.thread_names[t]));
  for (const trace::FinishedSpan& e : trace.events) {
    fmt::format_to(to,
                   ",\n{{\"ph\":\"X\",\"name\":{},\"cat\":\"{}\",\"pid\":{},\"tid\":{},"
                   "\"ts\":{},\"dur\":{}",
                   quoted(e.name), name_of(e.category), trace.rank, e.thread,
                   microseconds(e.begin_ns - trace.clock_offset_ns - trace.origin_ns),
                   microseconds(e.end_ns - e.begin_ns));
    if (e.arg.name != nullptr)
      fmt::format_to(to, ",\"args\":{{{}:{}}}", quoted(e.arg.name), e.arg.value);
    out += '}';
  }
  return out;
}

std::string chrome_trace(const std::vector<std::string>& fragments,
                         const std::vector<std::pair<std::string, std::string>>& notes) {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"otherData\":{";
  for (std::size_t i = 0; i < notes.size(); ++i)
    out += (i > 0 ? "," : "") + quoted(notes[i].first) + ":" + quoted(notes[i].second);
  return fmt::format("{}}},\n\"traceEvents\":[\n{}\n]}}\n", out, fmt::join(fragments, ",\n"));
}

namespace {

ClockOffset measure_peer(comm::ProcessGroup& group, int peer) {
  std::vector<ClockSample> samples;
  std::array<std::int64_t, 1> stamp{};
  for (int i = 0; i < kPingPongs; ++i) {
    if (group.rank() == 0) {
      const std::int64_t sent = stamp[0] = trace::now_ns();
      group.send(std::span<const std::int64_t>(stamp), peer);
      group.recv(std::span<std::int64_t>(stamp), peer);
      samples.push_back({.sent = sent, .remote = stamp[0], .received = trace::now_ns()});
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

// Gathers texts of different lengths on rank 0; returns nothing on the others.
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

// Collective. Returns on every rank the offset of each rank's clock from rank 0's. Ranks on one
// host share CLOCK_MONOTONIC, so an estimate that is compatible with 0 is taken as 0.
std::vector<ClockOffset> clock_offsets(comm::ProcessGroup& group) {
  std::vector<ClockOffset> offsets(static_cast<std::size_t>(group.size()));
  for (int peer = 1; peer < group.size(); ++peer)
    if (group.rank() == 0 || group.rank() == peer)
      offsets[static_cast<std::size_t>(peer)] = measure_peer(group, peer);
  // Only rank 0 has the timestamps of both clocks, so it computes the offset and sends it to the
  // others.
  for (auto& o : offsets) {
    std::array<std::int64_t, 2> pair{o.offset_ns, o.uncertainty_ns};
    group.broadcast(std::span<std::int64_t>(pair), 0);
    o = {pair[0], pair[1]};
  }
  return offsets;
}

}  // namespace

void write_trace(comm::ProcessGroup& group, const StepClock& clock, const std::string& path) {
  const auto offsets = clock_offsets(group);
  const auto& events = clock.events();
  std::array<std::int64_t, 1> origin{events.empty() ? trace::now_ns() : events.front().begin_ns};
  group.broadcast(std::span<std::int64_t>(origin), 0);

  const RankTrace mine{group.rank(), origin[0],
                       offsets[static_cast<std::size_t>(group.rank())].offset_ns, events,
                       trace::thread_names()};
  const auto fragments = gather_texts(group, chrome_events(mine));

  together(group, [&] {
    if (group.rank() != 0) return;
    std::vector<std::pair<std::string, std::string>> notes = {
        {"world", std::to_string(group.size())},
        {"events not kept on rank 0", std::to_string(clock.lost())}};
    for (std::size_t r = 1; r < offsets.size(); ++r)
      notes.emplace_back(fmt::format("clock of rank {} - clock of rank 0", r),
                         fmt::format("{} ns, measured within {} ns", offsets[r].offset_ns,
                                     offsets[r].uncertainty_ns));
    write_atomically(path, chrome_trace(fragments, notes));
  });
}

}  // namespace ringsmith::apps
