#include "labs/apps/compare/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <limits>

#include "labs/apps/compare/chart.hpp"
#include "runtime/base/table.hpp"

namespace ringsmith::apps {

namespace {

using Matrix = std::vector<std::vector<double>>;

// Solves the system by Gaussian elimination with pivoting. x: the right-hand side, then the
// solution. Returns false if the terms are linearly dependent.
bool solve(Matrix a, std::vector<double>& x) {
  const std::size_t n = x.size();
  for (std::size_t column = 0; column < n; ++column) {
    std::size_t pivot = column;
    for (std::size_t row = column + 1; row < n; ++row)
      if (std::abs(a[row][column]) > std::abs(a[pivot][column])) pivot = row;
    if (std::abs(a[pivot][column]) < 1e-12) return false;
    std::swap(a[pivot], a[column]);
    std::swap(x[pivot], x[column]);
    for (std::size_t row = 0; row < n; ++row) {
      if (row == column) continue;
      const double factor = a[row][column] / a[column][column];
      for (std::size_t k = column; k < n; ++k) a[row][k] -= factor * a[column][k];
      x[row] -= factor * x[column];
    }
  }
  for (std::size_t k = 0; k < n; ++k) x[k] /= a[k][k];
  return true;
}

double squared_error(const Matrix& terms, const std::vector<double>& constants,
                     const std::vector<double>& values) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    sum += std::pow(predict(constants, terms[i]) / values[i] - 1, 2);
  return sum;
}

// Fits only the chosen terms, by the normal equations. Returns false if the measurements do not
// determine them.
bool fit_chosen(const Matrix& terms, const std::vector<double>& values,
                const std::vector<std::size_t>& chosen, std::vector<double>& constants) {
  Matrix normal(chosen.size(), std::vector<double>(chosen.size()));
  std::vector<double> x(chosen.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    for (std::size_t a = 0; a < chosen.size(); ++a) {
      const double left = terms[i][chosen[a]] / values[i];
      x[a] += left;
      for (std::size_t b = 0; b < chosen.size(); ++b)
        normal[a][b] += left * terms[i][chosen[b]] / values[i];
    }
  // Scale the diagonal to ones, because solve() compares pivots with a constant, and terms differ
  // widely in size.
  std::vector<double> scale(chosen.size());
  for (std::size_t a = 0; a < chosen.size(); ++a) {
    if (!(normal[a][a] > 0)) return false;
    scale[a] = 1 / std::sqrt(normal[a][a]);
  }
  for (std::size_t a = 0; a < chosen.size(); ++a) {
    x[a] *= scale[a];
    for (std::size_t b = 0; b < chosen.size(); ++b) normal[a][b] *= scale[a] * scale[b];
  }
  if (!solve(normal, x)) return false;
  for (std::size_t a = 0; a < chosen.size(); ++a) constants[chosen[a]] = x[a] * scale[a];
  return true;
}

}  // namespace

double predict(const std::vector<double>& constants, const std::vector<double>& terms) {
  double sum = 0;
  for (std::size_t k = 0; k < constants.size(); ++k) sum += constants[k] * terms[k];
  return sum;
}

std::vector<double> fit_non_negative(const Matrix& terms, const std::vector<double>& values) {
  const std::size_t n = terms.empty() ? 0 : terms[0].size();
  std::vector<double> best(n);
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t set = 1; set < std::size_t{1} << n; ++set) {
    std::vector<std::size_t> chosen;
    for (std::size_t k = 0; k < n; ++k)
      if ((set >> k & 1) != 0) chosen.push_back(k);
    std::vector<double> constants(n);
    if (chosen.size() > values.size() || !fit_chosen(terms, values, chosen, constants)) continue;
    if (!std::ranges::all_of(constants, [](double c) { return c >= 0; })) continue;
    const double error = squared_error(terms, constants, values);
    if (error < least) {
      least = error;
      best = constants;
    }
  }
  return best;
}

namespace {

using Runs = std::vector<Comparison>;
using Terms = std::function<std::vector<double>(double n)>;
using Figure = std::function<double(const Comparison&)>;

constexpr const char* kTitle = "One training, two ways: DataParallel and DistributedDataParallel";

double root_traffic(const Comparison& c) { return c.dp.sent + c.dp.received; }

Curve& add_measured(Panel& panel, const char* name, Curve::Role role, const Runs& runs,
                    const Figure& figure) {
  Curve& curve = panel.curves.emplace_back(Curve{name, role, {}, {}});
  for (const Comparison& run : runs)
    curve.measured.push_back({static_cast<double>(run.devices), figure(run)});
  return curve;
}

void continue_with(Curve& curve, const std::function<double(double n)>& value, int to) {
  for (double n = curve.measured.back().devices; n <= to; n *= 2)
    curve.predicted.push_back({n, value(n)});
}

// Extends the curve by a fit to the measurements with at least `from` devices. The dashed line
// starts at the fitted value, which may differ from the last measurement.
void continue_with_fit(Curve& curve, const Terms& terms, int to, int from = 1) {
  std::vector<std::vector<double>> rows;
  std::vector<double> values;
  for (const ChartPoint& p : curve.measured)
    if (p.value > 0 && p.devices >= from) {
      rows.push_back(terms(p.devices));
      values.push_back(p.value);
    }
  if (rows.empty()) return;
  const std::vector<double> constants = fit_non_negative(rows, values);
  continue_with(
      curve, [&](double n) { return predict(constants, terms(n)); }, to);
}

Panel bytes_panel(const Runs& runs, int to) {
  const double p = runs.front().parameter_bytes;
  Panel panel{"Bytes moved in a step", Panel::Unit::bytes, {}};
  Curve& root = add_measured(panel, "DataParallel, root's links: 2 (N−1) P", Curve::Role::first,
                             runs, root_traffic);
  continue_with(
      root, [p](double n) { return root_bytes(n, p); }, to);
  Curve& rank =
      add_measured(panel, "DDP, gradients sent by each rank: 2 P (N−1) / N", Curve::Role::second,
                   runs, [](const Comparison& c) { return c.ddp.sent; });
  continue_with(
      rank, [p](double n) { return rank_bytes(n, p); }, to);
  return panel;
}

Panel memory_panel(const Runs& runs, int to) {
  Panel panel{"Memory of a device, peak", Panel::Unit::bytes, {}};
  const auto add = [&](const char* name, Curve::Role role, const Figure& figure,
                       const Terms& terms) {
    continue_with_fit(add_measured(panel, name, role, runs, figure), terms, to, 2);
  };
  const Terms constant = [](double) -> std::vector<double> { return {1}; };
  // With one device, DataParallel only runs the model. With more, the root holds the inputs,
  // outputs and losses of all rows.
  add(
      "DataParallel, root", Curve::Role::first,
      [](const Comparison& c) { return c.dp.root_memory; },
      [](double n) -> std::vector<double> {
        return {1, n};
      });
  add(
      "DataParallel, other devices", Curve::Role::first_pale,
      [](const Comparison& c) { return c.dp.other_memory; }, constant);
  add(
      "DDP, every rank", Curve::Role::second,
      [](const Comparison& c) { return std::max(c.ddp.root_memory, c.ddp.other_memory); },
      constant);
  return panel;
}

Panel time_panel(const Runs& runs, const ReportText& text, int to) {
  Panel panel{text.simulated ? "Time of a step (simulated devices)" : "Time of a step",
              Panel::Unit::seconds,
              {}};
  // An overhead, and one term for both the steps and the bytes, because both grow as N - 1.
  const Terms of_dp = [](double n) -> std::vector<double> { return {1, n - 1}; };
  continue_with_fit(add_measured(panel, "DataParallel", Curve::Role::first, runs,
                                 [](const Comparison& c) { return c.dp.seconds; }),
                    of_dp, to);
  // An overhead, 2 (N - 1) steps, and 2 P (N - 1) / N bytes.
  const Terms of_ddp = [](double n) -> std::vector<double> { return {1, n - 1, (n - 1) / n}; };
  continue_with_fit(add_measured(panel, "DDP", Curve::Role::second, runs,
                                 [](const Comparison& c) { return c.ddp.seconds; }),
                    of_ddp, to);
  return panel;
}

bool has_memory(const Runs& runs) { return runs.front().dp.root_memory > 0; }

}  // namespace

double root_bytes(double n, double parameter_bytes) { return 2 * (n - 1) * parameter_bytes; }
double rank_bytes(double n, double parameter_bytes) { return 2 * parameter_bytes * (n - 1) / n; }

double deviation_from_formulas(const Runs& runs) {
  double worst = 0;
  const auto look = [&](double counted, double formula) {
    const double off = formula == 0 && counted == 0 ? 0 : std::abs(counted / formula - 1);
    worst = std::isnan(off) ? std::numeric_limits<double>::infinity() : std::max(worst, off);
  };
  for (const Comparison& c : runs) {
    look(root_traffic(c), root_bytes(c.devices, c.parameter_bytes));
    look(c.ddp.sent, rank_bytes(c.devices, c.parameter_bytes));
  }
  return worst;
}

std::string comparison_table(const Runs& runs) {
  Table table({{"N"},
               {"DP ms"},
               {"DDP ms"},
               {"DP KiB"},
               {"DDP KiB"},
               {"ratio"},
               {"root mem"},
               {"others"},
               {"DDP mem"},
               {"apart"}});
  const auto kib = [](double bytes) {
    return bytes > 0 ? fmt::format("{:.0f}", bytes / 1024) : std::string("-");
  };
  for (const Comparison& c : runs)
    table.row({std::to_string(c.devices), fmt::format("{:.1f}", c.dp.seconds * 1e3),
               fmt::format("{:.1f}", c.ddp.seconds * 1e3), kib(root_traffic(c)), kib(c.ddp.sent),
               c.ddp.sent > 0 ? fmt::format("{:.1f}", root_traffic(c) / c.ddp.sent) : "-",
               kib(c.dp.root_memory), kib(c.dp.other_memory),
               kib(std::max(c.ddp.root_memory, c.ddp.other_memory)),
               fmt::format("{:.0e}", c.dp_from_ddp)});
  return table.str();
}

std::string comparison_svg(const Runs& runs, const ReportText& text, int predict_to) {
  std::vector<Panel> panels{bytes_panel(runs, predict_to)};
  if (has_memory(runs)) panels.push_back(memory_panel(runs, predict_to));
  panels.push_back(time_panel(runs, text, predict_to));
  return render_panels(kTitle, text.setting, panels);
}

std::string comparison_html(const Runs& runs, const ReportText& text, int predict_to) {
  std::string rows;
  const auto cell = [](double value, Panel::Unit unit) {
    return "<td>" + (value > 0 ? in_unit(value, unit) : std::string("–")) + "</td>";
  };
  for (const Comparison& c : runs)
    rows += fmt::format("<tr><th>{}</th>", c.devices) + cell(c.dp.seconds, Panel::Unit::seconds) +
            cell(c.ddp.seconds, Panel::Unit::seconds) + cell(root_traffic(c), Panel::Unit::bytes) +
            cell(c.dp.besides, Panel::Unit::bytes) + cell(c.ddp.sent, Panel::Unit::bytes) +
            cell(c.ddp.besides, Panel::Unit::bytes) + cell(c.dp.root_memory, Panel::Unit::bytes) +
            cell(c.dp.other_memory, Panel::Unit::bytes) +
            cell(std::max(c.ddp.root_memory, c.ddp.other_memory), Panel::Unit::bytes) +
            fmt::format("<td>{:.1e}</td></tr>\n", c.dp_from_ddp);
  return fmt::format(
      R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width"/>
<meta name="color-scheme" content="light dark"/>
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; max-width: 74rem; margin: 2rem auto; padding: 0 1rem; }}
svg {{ max-width: 100%; height: auto; }}
table {{ border-collapse: collapse; font-size: 0.9rem; }}
td, th {{ text-align: right; padding: 0.25rem 0.7rem; border-bottom: 1px solid #8a92a355; font-variant-numeric: tabular-nums; }}
p {{ max-width: 46rem; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{setting}. {timing}</p>
{svg}
<table>
<thead>
<tr><th></th><th colspan="2">time of a step</th><th colspan="4">bytes a step</th><th colspan="3">peak memory</th><th></th></tr>
<tr><th>N</th><th>DataParallel</th><th>DDP</th><th>root, parameters and gradients</th><th>root, rows</th><th>DDP, gradients sent by each rank</th><th>DDP, other</th><th>root</th><th>others</th><th>DDP</th><th>results differ by</th></tr>
</thead>
<tbody>
{rows}</tbody>
</table>
<p>DataParallel sends all parameters from the root to each of the N−1 other devices in every forward,
and gets all gradients back: 2 (N−1) P bytes over the links of one device, counted where the copies are
made. DDP's ring sends 2 P (N−1) / N bytes of gradients from each rank, counted step by step, and each
rank receives the same amount: never more than 2 P, for any number of devices. Each rank also sends one
bit per parameter and the number of the step around the ring, so that all ranks agree on which gradients
exist: a few words, whatever the size of the model.</p>
<p>The root of DataParallel holds everything that the other devices hold, and also the gathered outputs,
their gradient, the gradients and the optimizer's state. In DDP all ranks hold the same.</p>
<p>Dashed lines: bytes by the formulas; time as overhead + α · steps + β · bytes, memory as constant +
share of the batch, with constants fitted to the measurements.</p>
</body>
</html>
)",
      fmt::arg("title", kTitle), fmt::arg("setting", escape_xml(text.setting)),
      fmt::arg("timing", escape_xml(text.timing)),
      fmt::arg("svg", comparison_svg(runs, text, predict_to)), fmt::arg("rows", rows));
}

}  // namespace ringsmith::apps
