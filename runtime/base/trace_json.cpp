#include "runtime/base/trace_json.hpp"

#include <cstdlib>
#include <fmt/format.h>
#include <iterator>
#include <nlohmann/json.hpp>

namespace ringsmith::trace {

namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

// Exact: a double of microseconds since boot would lose the nanoseconds after weeks of uptime.
std::string microseconds(std::int64_t ns) {
  const std::int64_t size = std::llabs(ns);
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", size / 1000, size % 1000);
}

}  // namespace

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
  for (const Event& e : trace.events) {
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
  out += "},\n\"traceEvents\":[\n";
  for (std::size_t i = 0; i < fragments.size(); ++i) {
    if (i > 0) out += ",\n";
    out += fragments[i];
  }
  return out + "\n]}\n";
}

}  // namespace ringsmith::trace
