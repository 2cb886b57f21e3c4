#include "labs/apps/common/report.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "labs/apps/common/losses.hpp"
#include "runtime/base/process_memory.hpp"
#include "runtime/base/table.hpp"
#include "runtime/device/memory.hpp"
#include "runtime/tensor/storage.hpp"

namespace ringsmith::apps {

namespace {

using trace::StepTime;

constexpr double kMiB = 1 << 20;

struct Phase {
  const char* name;
  const char* key;
  std::int64_t (*of)(const StepTime&);
};

// Those of a step, which add up to it.
constexpr Phase kPhases[] = {
    {"data", "data_ms", [](const StepTime& t) { return t.data; }},
    {"forward", "forward_ms", [](const StepTime& t) { return t.forward; }},
    {"backward", "backward_ms", [](const StepTime& t) { return t.backward; }},
    {"exposed communication", "exposed_ms", [](const StepTime& t) { return t.exposed; }},
    {"optimizer", "optimizer_ms", [](const StepTime& t) { return t.optim; }},
    {"other", "other_ms", [](const StepTime& t) { return t.other(); }},
    {"step", "step_ms", [](const StepTime& t) { return t.step; }}};
constexpr Phase kComm = {"communication in all", "comm_ms",
                         [](const StepTime& t) { return t.comm; }};

struct Spread {
  double mean = 0;  // milliseconds a step
  double most = 0;
};

Spread spread(const Report& report, const Phase& phase) {
  Spread out;
  for (const StepTime& t : report.time) {
    const double ms = static_cast<double>(phase.of(t)) / 1e6 /
                      static_cast<double>(std::max<std::int64_t>(report.steps, 1));
    out.mean += ms / static_cast<double>(report.time.size());
    out.most = std::max(out.most, ms);
  }
  return out;
}

double hidden_fraction(const Report& report) {
  StepTime sum;
  for (const StepTime& t : report.time) sum += t;
  return sum.hidden_fraction();
}

}  // namespace

Report make_report(comm::ProcessGroup& group, const StepClock& clock, Device device) {
  const StepTime& t = clock.total();
  const auto d = [](auto v) { return static_cast<double>(v); };
  const auto rows =
      gather_rows(group, {d(t.step), d(t.forward), d(t.backward), d(t.optim), d(t.data), d(t.comm),
                          d(t.exposed), d(t.tail), d(peak_resident().value),
                          d(host_allocator::stats().peak.value),
                          device.is_cpu() ? 0 : d(device_allocator::stats(device).peak.value)});
  Report out;
  out.steps = clock.steps();
  for (const auto& row : rows) {
    const auto ns = [&](std::size_t i) { return static_cast<std::int64_t>(row[i]); };
    out.time.push_back({ns(0), ns(1), ns(2), ns(3), ns(4), ns(5), ns(6), ns(7)});
    out.memory.push_back({row[8], row[9], row[10]});
  }
  return out;
}

std::string time_table(const Report& report) {
  Table table(
      {{"where the time went", Table::Align::left}, {"ms/step"}, {"slowest rank"}, {"share"}});
  const double step = spread(report, kPhases[std::size(kPhases) - 1]).mean;
  for (const Phase& phase : kPhases) {
    const Spread s = spread(report, phase);
    table.row({phase.name, fmt::format("{:.2f}", s.mean), fmt::format("{:.2f}", s.most),
               fmt::format("{:.1f} %", step > 0 ? 100 * s.mean / step : 0.0)});
  }
  const double comm = spread(report, kComm).mean;
  std::string out = table.str();
  if (comm > 0)
    out +=
        fmt::format("communication in all: {:.2f} ms/step, {:.0f} % of it hidden by computation\n",
                    comm, 100 * hidden_fraction(report));
  return out;
}

std::string memory_line(const Report& report) {
  std::string out = "peak memory by rank, MiB (of it tensors): ", gpus;
  for (std::size_t r = 0; r < report.memory.size(); ++r) {
    const RankMemory& m = report.memory[r];
    out += fmt::format("{}{:.0f} ({:.0f})", r > 0 ? ", " : "", m.peak_resident / kMiB,
                       m.peak_tensors / kMiB);
    if (m.peak_device > 0)
      gpus += fmt::format("{}{:.1f}", gpus.empty() ? "" : ", ", m.peak_device / kMiB);
  }
  if (!gpus.empty()) out += "\npeak memory of tensors on the ranks' GPUs, MiB: " + gpus;
  return out + "\n";
}

nlohmann::ordered_json to_json(const Report& report) {
  nlohmann::ordered_json out;
  for (const Phase& phase : kPhases) out[phase.key] = spread(report, phase).mean;
  out[kComm.key] = spread(report, kComm).mean;
  out["hidden_fraction"] = hidden_fraction(report);
  for (const RankMemory& m : report.memory) {
    out["peak_resident_bytes"].push_back(static_cast<std::int64_t>(m.peak_resident));
    out["peak_tensor_bytes"].push_back(static_cast<std::int64_t>(m.peak_tensors));
    if (m.peak_device > 0)
      out["peak_device_bytes"].push_back(static_cast<std::int64_t>(m.peak_device));
  }
  return out;
}

}  // namespace ringsmith::apps
