#include "labs/apps/train/run_report.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "labs/apps/train/progress.hpp"
#include "labs/apps/train/report_page.hpp"
#include "runtime/base/atomic_file.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::apps {

namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::size_t kMostSteps = 4000;  // per figure; of more steps only every second, third, ...
constexpr std::size_t kMostRanks = 16;    // in the timeline

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw UsageError("cannot make a report of '" + path + "': " + why +
                   "; give the folder of a run of train_gpt or train_mlp");
}

ordered_json parsed(const std::string& path, const std::string& text, std::size_t line) {
  ordered_json out = ordered_json::parse(text, nullptr, false);
  if (out.is_discarded() || !out.is_object())
    refuse(path, fmt::format("line {} is not a JSON object", line));
  return out;
}

// Ignores an incomplete last line, which a run that died may have left.
std::vector<ordered_json> read_lines(const std::string& path) {
  if (const std::string kind = odd_kind(path); !kind.empty()) refuse(path, "it is " + kind);
  std::ifstream in(path, std::ios::binary);
  if (!in) refuse(path, "there is no such file");
  std::vector<ordered_json> out;
  std::string line;
  while (std::getline(in, line) && !in.eof()) out.push_back(parsed(path, line, out.size() + 1));
  return out;
}

ordered_json read_facts(const std::string& path) {
  if (const std::string kind = odd_kind(path); !kind.empty()) refuse(path, "it is " + kind);
  std::ifstream in(path, std::ios::binary);
  if (!in) return ordered_json::object();
  std::ostringstream text;
  text << in.rdbuf();
  return parsed(path, text.str(), 1);
}

double number(const ordered_json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || !found->is_number() ? 0 : found->get<double>();
}

// ---- the timeline: one step of trace.json ----

struct Window {
  double begin = 0, length = 0;  // microseconds
  std::int64_t step = 0;
};

// trace.json has one event per line (trace_file.cpp).
template <class Visit>
void for_each_span(const std::string& path, const char* having, const Visit& visit) {
  if (const std::string kind = odd_kind(path); !kind.empty()) refuse(path, "it is " + kind);
  std::ifstream in(path, std::ios::binary);
  std::size_t number_of_line = 0;
  for (std::string line; std::getline(in, line);) {
    ++number_of_line;
    if (!line.starts_with("{\"ph\":\"X\"") || line.find(having) == std::string::npos) continue;
    if (line.back() == ',') line.pop_back();
    const ordered_json span = parsed(path, line, number_of_line);
    for (const char* key : {"ts", "dur", "pid"})
      if (!span.contains(key) || !span[key].is_number())
        refuse(path, fmt::format("line {} has no number '{}'", number_of_line, key));
    visit(span);
  }
}

// Returns rank 0's step of median length. The first steps, which are atypical, do not count if
// there are enough others.
Window typical_step(const std::string& path) {
  constexpr std::size_t kWarmUp = 2;
  std::vector<Window> steps;
  for_each_span(path, "\"name\":\"step\"", [&](const ordered_json& span) {
    if (number(span, "pid") == 0 && span.contains("args"))
      steps.push_back(
          {span["ts"], span["dur"], static_cast<std::int64_t>(number(span["args"], "step"))});
  });
  if (steps.empty()) return {};
  if (steps.size() > 2 * kWarmUp) steps.erase(steps.begin(), steps.begin() + kWarmUp);
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>((steps.size() - 1) / 2);
  std::ranges::nth_element(steps, middle, {}, &Window::length);
  return *middle;
}

// Returns all ranks' spans within the step. Without a communication hook, or with the hook
// allreduce (plain_buckets), a rank's all-reduces are its buckets, in order.
ordered_json timeline_of(const std::string& path, bool plain_buckets) {
  if (!fs::exists(path)) return nullptr;
  const Window window = typical_step(path);
  if (window.length <= 0) return nullptr;
  std::map<int, ordered_json> by_rank;
  for_each_span(path, "\"cat\":\"", [&](const ordered_json& span) {
    const std::string category = span.value("cat", "");
    if (category == "frame" || category == "operation") return;
    const double begin = std::max(span["ts"].get<double>() - window.begin, 0.0);
    const double end = std::min(span["ts"].get<double>() + span["dur"].get<double>() - window.begin,
                                window.length);
    if (end <= begin) return;
    ordered_json out = {{"name", span.value("name", "?")},
                        {"cat", category},
                        {"begin", begin / 1e3},
                        {"ms", (end - begin) / 1e3}};
    if (category == "comm" && span.contains("args")) out["bytes"] = number(span["args"], "bytes");
    by_rank[span["pid"]].push_back(std::move(out));
  });
  ordered_json ranks = ordered_json::array();
  for (auto& [rank, spans] : by_rank) {
    if (ranks.size() == kMostRanks) break;
    std::stable_sort(spans.begin(), spans.end(), [](const ordered_json& a, const ordered_json& b) {
      return a["begin"].get<double>() < b["begin"].get<double>();
    });
    int bucket = 0;
    for (ordered_json& span : spans)
      if (plain_buckets && span.value("cat", "") == "comm" &&
          span.value("name", "") == "all_reduce")
        span["bucket"] = bucket++;
    ranks.push_back({{"rank", rank}, {"spans", spans}});
  }
  return {{"step", window.step},
          {"ms", window.length / 1e3},
          {"ranks", ranks},
          {"left_out", by_rank.size() - ranks.size()}};
}

// ---- the figures by step ----

constexpr const char* kStepParts[] = {"data_ms", "forward_ms", "backward_ms", "exposed_ms",
                                      "optimizer_ms"};

void add_series(ordered_json& data, const std::vector<ordered_json>& lines) {
  std::vector<const ordered_json*> steps;
  data["evaluations"] = ordered_json::array();
  for (const ordered_json& line : lines) {
    if (line.contains("validation_loss"))
      data["evaluations"].push_back(
          {{"step", line.value("step", 0)},
           {"loss", line["validation_loss"]},
           {"accuracy", line.value("validation_accuracy", ordered_json())}});
    else if (line.contains("loss") && line.contains("step"))
      steps.push_back(&line);
  }
  const std::size_t every = 1 + steps.size() / (kMostSteps + 1);
  data["every"] = every;
  data["steps"] = ordered_json::array();
  const auto rate = [](const std::string& key) { return key.ends_with("_per_s"); };
  ordered_json& series = data["series"];
  for (const char* key :
       {"loss", "lr", "rate", "step_ms", "data_ms", "forward_ms", "backward_ms", "exposed_ms",
        "optimizer_ms", "other_ms", "comm_ms", "resident_bytes", "device_bytes"})
    series[key] = ordered_json::array();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (i % every != 0 && i + 1 != steps.size()) continue;
    const ordered_json& line = *steps[i];
    data["steps"].push_back(line["step"]);
    for (auto& [key, values] : series.items()) values.push_back(line.value(key, ordered_json()));
    for (const auto& [key, value] : line.items())
      if (rate(key)) {
        series["rate"].back() = value;
        data["unit"] = key.substr(0, key.size() - std::string("_per_s").size());
      }
    if (line.contains("forward_ms")) {
      double other = number(line, "step_ms");
      for (const char* part : kStepParts) other -= number(line, part);
      series["other_ms"].back() = std::max(other, 0.0);
    }
  }
}

std::string words(const ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string out;
  for (const ordered_json& part : value) out += (out.empty() ? "" : "\n") + words(part);
  return out;
}

void add_words(ordered_json& data, const ordered_json& facts, const std::string& folder) {
  const auto text = [&](const char* key, const std::string& otherwise) {
    return facts.contains(key) ? words(facts[key]) : otherwise;
  };
  const int world = static_cast<int>(number(facts, "world"));
  data["title"] = text("program", "A run") +
                  (world == 0 ? "" : fmt::format(" on {} rank{}", world, world == 1 ? "" : "s"));
  data["subtitle"] = facts.empty() ? "The run has not ended: run.json is missing from its folder."
                                   : text("headline", "");
  ordered_json& numbers = data["numbers"] = ordered_json::array();
  const auto add = [&](const char* name, const std::string& value) {
    numbers.push_back({name, value});
  };
  add("steps",
      std::to_string(data["steps"].empty() ? 0 : data["steps"].back().get<std::int64_t>()));
  const ordered_json& losses = data["series"]["loss"];
  if (!losses.empty() && losses.back().is_number())
    add("loss", fmt::format("{:.4f}", losses.back().get<double>()));
  const ordered_json& evaluations = data["evaluations"];
  if (!evaluations.empty() && evaluations.back()["loss"].is_number())
    add("held-out loss", fmt::format("{:.4f}", evaluations.back()["loss"].get<double>()));
  if (facts.contains("seconds")) add("time", format_duration(number(facts, "seconds")));
  if (facts.contains("rate"))
    add((data.value("unit", "units") + "/s").c_str(), format_count(number(facts, "rate")));
  if (number(facts, "comm_ms") > 0)
    add("of communication is hidden",
        fmt::format("{:.0f} %", 100 * number(facts, "hidden_fraction")));

  ordered_json& list = data["facts"] = ordered_json::array();
  for (const auto& [key, name] : std::initializer_list<std::pair<const char*, const char*>>{
           {"command", "command"},
           {"host", "host of rank 0"},
           {"device", "device"},
           {"transport", "transport"},
           {"bucket_cap_mb", "bucket cap, MiB"},
           {"overlap", "overlap"},
           {"algorithm", "algorithm"},
           {"communication_hook", "communication hook"},
           {"amp", "mixed precision"},
           {"kernels", "kernels"},
           {"threads", "threads per rank"}})
    if (facts.contains(key) && !words(facts[key]).empty())
      list.push_back({name, words(facts[key])});
  std::error_code error;
  list.push_back({"folder", fs::absolute(folder, error).string()});
}

}  // namespace

void write_facts(const std::string& folder, const ordered_json& facts) {
  write_atomically(folder + "/run.json",
                   facts.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

ordered_json report_data(const std::string& folder) {
  if (!fs::is_directory(folder)) refuse(folder, "there is no such folder");
  const std::vector<ordered_json> lines = read_lines(folder + "/metrics.jsonl");
  const ordered_json facts = read_facts(folder + "/run.json");
  ordered_json data = {{"title", ""}, {"subtitle", ""}, {"unit", "units"}};
  add_series(data, lines);
  if (data["steps"].empty()) refuse(folder, "metrics.jsonl has no finished step");
  add_words(data, facts, folder);
  const std::string hook = facts.value("communication_hook", "none");
  data["timeline"] = timeline_of(folder + "/trace.json", hook == "none" || hook == "allreduce");
  data["memory"] = facts.value("memory", ordered_json::array());
  data["operations"] = facts.value("operations", ordered_json());
  return data;
}

std::string write_report(const std::string& folder) {
  const std::string path = folder + "/report.html";
  try {
    write_atomically(path, report_page(report_data(folder)));
  } catch (const nlohmann::json::exception&) {
    refuse(folder,
           "a value in metrics.jsonl, run.json or trace.json has another type than a run writes");
  }
  return path;
}

std::vector<std::string> own_command_line() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> out;
  for (std::string argument; std::getline(in, argument, '\0');) out.push_back(argument);
  return out;
}

// /proc/self/smaps: a line "address perms offset dev inode path" per mapping, then its sizes.
Bytes communication_memory() {
  std::ifstream in("/proc/self/smaps");
  std::size_t kib = 0;
  bool ours = false;
  for (std::string line; std::getline(in, line);) {
    if (line.find('-') < line.find(' ')) ours = line.find("/memfd:ringsmith") != std::string::npos;
    if (ours && line.starts_with("Pss:")) kib += std::stoul(line.substr(4));
  }
  return Bytes(kib * 1024);
}

}  // namespace ringsmith::apps
