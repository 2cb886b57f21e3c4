// The output of the measuring programs: a table in the style of nccl-tests, or one JSON object.
#include <array>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "labs/apps/common/files.hpp"
#include "labs/apps/perf/perf.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::apps {

using comm::ProcessGroup;
using nlohmann::json;

PerfReport::PerfReport(const Benchmark& benchmark, const PerfOptions& options, ProcessGroup& group)
    : benchmark_(benchmark), options_(options), group_(group), json_(std::make_unique<json>()) {
  table_ = group.rank() == 0 && !options.json;
}

PerfReport::~PerfReport() = default;

void PerfReport::header(const std::string& model, const std::vector<comm::SizedChoice>& choices) {
  predicted_ = !model.empty();
  *json_ = {{"program", benchmark_.name},
            {"version", RINGSMITH_VERSION},
            {"ranks", group_.size()},
            {"memory", options_.own_memory ? "own" : "user"},
            {"algorithm", std::string(name_of(options_.algorithm))},
            {"cost_model", model},
            {"fastest", options_.fastest},
            {"device", group_.device().is_cpu() ? "cpu" : "cuda"},
            {"transport", group_.describe_transport()},
            {"started", std::time(nullptr)},
            {"results", json::array()}};
  line("# {}, ringsmith {}", benchmark_.name, RINGSMITH_VERSION);
  line(
      "# ranks {} minBytes {} maxBytes {} step: {} warmup iters: {} iters: {} validation: {} "
      "memory: {} algorithm: {} timeout: {} s bind: {}",
      group_.size(), options_.min_bytes, options_.max_bytes,
      options_.factor > 0 ? fmt::format("{}(factor)", options_.factor)
                          : fmt::format("{}(bytes)", options_.step_bytes),
      options_.warmup, options_.iterations, options_.check, options_.own_memory ? "own" : "user",
      name_of(options_.algorithm), options_.timeout, options_.bind ? 1 : 0);
  ranks();
  for (const std::string& fact : group_.describe_transport()) line("# {}", fact);
  for (const comm::SizedChoice& choice : choices)
    line("# fastest up to {:>10.0f} bytes{}: {}", choice.up_to,
         &choice == &choices.back() ? ", and above" : "", name_of(choice.algorithm));
  if (predicted_) line("# predicted by the alpha-beta-gamma model, {}", model);
  if (group_.size() == 1)
    line("# one rank alone: nothing is communicated, busbw is 0 by definition");
  const bool both = options_.out_of_place && options_.in_place;
  const int width = 43 + (options_.statistics ? 36 : 0);
  line("#");
  line("# {:>47} {:^{}}{}", "", options_.out_of_place ? "out-of-place" : "in-place", width,
       both ? fmt::format(" {:^{}}", "in-place", width) : "");
  std::string names =
      fmt::format("# {:>11} {:>12} {:>6} {:>6} {:>6}", "size", "count", "type", "redop", "root");
  std::string units =
      fmt::format("# {:>11} {:>12} {:>6} {:>6} {:>6}", "(B)", "(elements)", "", "", "");
  for (int place = both ? 0 : 1; place < 2; ++place) {
    names += fmt::format(" {:>10} {:>10} {:>7} {:>7}{} {:>6}", "time", "avg", "algbw", "busbw",
                         options_.statistics
                             ? fmt::format(" {:>9} {:>9} {:>9} {:>5}", "min", "max", "p99", "cv")
                             : "",
                         "#wrong");
    units += fmt::format(
        " {:>10} {:>10} {:>7} {:>7}{} {:>6}", "(us)", "(us)", "(GB/s)", "(GB/s)",
        options_.statistics ? fmt::format(" {:>9} {:>9} {:>9} {:>5}", "(us)", "(us)", "(us)", "(%)")
                            : "",
        "");
  }
  if (predicted_) {
    names += fmt::format(" {:>10} {:>6}", "predicted", "ratio");
    units += fmt::format(" {:>10} {:>6}", "(us)", "");
  }
  line("{}", names);
  line("{}", units);
}

void PerfReport::row(const Shape& shape, const Measurement* out, const Measurement* in,
                     double predicted) {
  const std::size_t bytes = bytes_of_shape(benchmark_, shape, group_.size());
  std::string text =
      fmt::format("  {:>11} {:>12} {:>6} {:>6} {:>6}", bytes, shape.part, name_of(shape.dtype),
                  benchmark_.contract().reduces ? name_of(shape.op) : "none",
                  benchmark_.contract().rooted() ? shape.root : -1);
  json result = {
      {"size", bytes}, {"count", shape.part}, {"type", std::string(name_of(shape.dtype))}};
  if (benchmark_.contract().reduces) result["redop"] = std::string(name_of(shape.op));
  if (benchmark_.contract().rooted()) result["root"] = shape.root;
  for (const Measurement* m : {out, in}) {
    if (m == nullptr) continue;
    text += fmt::format(
        " {:>10.2f} {:>10.2f} {:>7.3f} {:>7.3f}{} {:>6}", m->time, m->avg, m->algbw, m->busbw,
        options_.statistics
            ? fmt::format(" {:>9.2f} {:>9.2f} {:>9.2f} {:>5.1f}", m->min, m->max, m->p99, m->cv)
            : "",
        m->wrong < 0 ? "N/A" : std::to_string(m->wrong));
    result[m == out ? "out_of_place" : "in_place"] = {
        {"time_us", m->time},
        {"avg_us", m->avg},
        {"min_us", m->min},
        {"max_us", m->max},
        {"p99_us", m->p99},
        {"cv_percent", m->cv},
        {"algbw", m->algbw},
        {"busbw", m->busbw},
        {"iterations", m->iterations},
        {"wrong", m->wrong < 0 ? json() : json(m->wrong)}};
    wrong_ += std::max<std::int64_t>(0, m->wrong);
    busbw_ += m->busbw;
    ++measured_;
  }
  if (predicted_) {
    const double time = (in != nullptr ? in : out)->time;
    text += fmt::format(" {:>10.2f} {:>6.2f}", predicted, time > 0 ? predicted / time : 0);
    result["predicted_us"] = predicted;
  }
  (*json_)["results"].push_back(std::move(result));
  line("{}", text);
}

int PerfReport::footer() {
  const double busbw = measured_ > 0 ? busbw_ / measured_ : 0;
  if (options_.check > 0)
    line("# Out of bounds values : {} {}", wrong_, wrong_ == 0 ? "OK" : "FAILED");
  else
    line("# Out of bounds values : not checked (-c 0)");
  line("# Avg bus bandwidth    : {:.6g} GB/s", busbw);
  line("# {} concluded", benchmark_.name);
  (*json_)["out_of_bounds"] = options_.check > 0 ? json(wrong_) : json();
  (*json_)["average_bus_bandwidth"] = busbw;
  if (group_.rank() == 0) {
    if (options_.json) fmt::print("{}\n", json_->dump(1));
    write_file(options_.json_file, json_->dump(1) + "\n");
  }
  return wrong_ == 0 ? 0 : static_cast<int>(ExitCode::internal);
}

void PerfReport::ranks() {
  std::array<std::uint8_t, 160> mine{};
  char host[128] = {};
  gethostname(host, sizeof host - 1);
  std::string text = fmt::format("pid {:>7} on {}", getpid(), host);
  if (!group_.device().is_cpu()) text += " " + group_.device().str();
  std::memcpy(mine.data(), text.data(), std::min(text.size(), mine.size() - 1));
  std::vector<std::uint8_t> all(mine.size() * static_cast<std::size_t>(group_.size()));
  group_.all_gather(std::span<const std::uint8_t>(mine), std::span<std::uint8_t>(all));
  line("# Using ranks");
  for (int r = 0; r < group_.size(); ++r)
    line("#  rank {:>3} {}", r,
         reinterpret_cast<const char*>(all.data() + mine.size() * static_cast<std::size_t>(r)));
}

}  // namespace ringsmith::apps
