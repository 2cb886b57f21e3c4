#include "labs/apps/train/operations.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/base/table.hpp"

namespace ringsmith::apps {

namespace {

constexpr double kGiga = 1e9;
constexpr std::size_t kNameWidth = 26;

std::int64_t time_of(const OperationProfile& profile, const profile::Row& row) {
  return profile.on_device ? row.device_ns : row.host_ns;
}

double per_step(const OperationProfile& profile, double sum) {
  return sum / static_cast<double>(std::max<std::int64_t>(profile.steps, 1));
}

std::string rate(double amount, std::int64_t ns) {
  if (amount == 0 || ns == 0) return "";
  const double giga = amount / static_cast<double>(ns);  // per ns is giga per second
  return fmt::format("{:.{}f}", giga, giga < 9.95 ? 2 : 1);
}

profile::Row sum_of(const std::vector<profile::Row>& rows, std::size_t from) {
  profile::Row sum;
  sum.name = fmt::format("{} others", rows.size() - from);
  for (std::size_t i = from; i < rows.size(); ++i) {
    sum.calls += rows[i].calls;
    sum.host_ns += rows[i].host_ns;
    sum.device_ns += rows[i].device_ns;
    sum.work.flop += rows[i].work.flop;
    sum.work.bytes += rows[i].work.bytes;
  }
  return sum;
}

}  // namespace

std::string operation_table(const OperationProfile& profile, std::size_t most) {
  std::vector<profile::Row> rows = profile.rows;
  if (rows.size() > most + 1) {
    const profile::Row others = sum_of(rows, most);
    rows.resize(most);
    rows.push_back(others);
  }
  Table table({{"operation", Table::Align::left},
               {"calls/step"},
               {"ms/step"},
               {"share"},
               {"GFLOP/s"},
               {"GB/s"}});
  const auto line = [&](const std::string& name, const std::string& calls, std::int64_t ns,
                        const profile::KernelWork& work) {
    const double share = profile.step_ns > 0
                             ? 100 * static_cast<double>(ns) / static_cast<double>(profile.step_ns)
                             : 0.0;
    table.row({name.substr(0, kNameWidth), calls,
               fmt::format("{:.3f}", per_step(profile, static_cast<double>(ns)) / kNsPerMs),
               fmt::format("{:.1f} %", share), rate(work.flop, ns), rate(work.bytes, ns)});
  };
  std::int64_t inside = 0;
  for (const profile::Row& row : rows) {
    const std::int64_t ns = time_of(profile, row);
    inside += ns;
    line(row.name, fmt::format("{:.4g}", per_step(profile, static_cast<double>(row.calls))), ns,
         row.work);
  }
  line("between operations", "", profile.step_ns - inside, {});
  const profile::Row all = sum_of(profile.rows, 0);
  return fmt::format("operations of rank 0{}\n{}{:.3f} GFLOP and {:.3f} GB in a step\n",
                     profile.on_device ? ", time on its GPU" : "", table.str(),
                     per_step(profile, all.work.flop) / kGiga,
                     per_step(profile, all.work.bytes) / kGiga);
}

nlohmann::ordered_json to_json(const OperationProfile& profile) {
  const auto mean = [&](double sum) { return per_step(profile, sum); };
  const auto ms = [&](std::int64_t ns) { return mean(static_cast<double>(ns)) / kNsPerMs; };
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const profile::Row& row : profile.rows)
    rows.push_back({{"name", row.name},
                    {"calls", mean(static_cast<double>(row.calls))},
                    {"ms", ms(time_of(profile, row))},
                    {"host_ms", ms(row.host_ns)},
                    {"flop", mean(row.work.flop)},
                    {"bytes", mean(row.work.bytes)}});
  return {{"on_device", profile.on_device}, {"step_ms", ms(profile.step_ns)}, {"rows", rows}};
}

}  // namespace ringsmith::apps
