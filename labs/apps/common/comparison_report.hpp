// What dp_vs_ddp shows: a table for the terminal, a picture, and a page with both.
//
// Beyond the devices that were measured, the picture follows the cost model: bytes by their
// formulas, time as overhead + alpha * steps + beta * bytes and memory as constant + rows of all
// devices, with constants fitted to the measurements.
#pragma once

#include <string>
#include <vector>

#include "labs/apps/common/comparison.hpp"

namespace ringsmith::apps {

// Bytes a step by the formulas; n devices, P bytes of parameters.
[[nodiscard]] double root_bytes(double n, double parameter_bytes);  // DataParallel: 2 (n - 1) P
[[nodiscard]] double rank_bytes(double n, double parameter_bytes);  // DDP: 2 P (n - 1) / n

// Largest relative deviation of the counters from the two formulas; NaN counts as infinite.
[[nodiscard]] double deviation_from_formulas(const std::vector<Comparison>& runs);

struct ReportText {
  std::string setting;  // model, rows, devices: one line
  std::string timing;   // what the times are: "simulated: ..." or "measured: ..."
  bool simulated = false;
};

[[nodiscard]] std::string comparison_table(const std::vector<Comparison>& runs);
[[nodiscard]] std::string comparison_svg(const std::vector<Comparison>& runs,
                                         const ReportText& text, int predict_to);
// Self-contained: nothing is fetched.
[[nodiscard]] std::string comparison_html(const std::vector<Comparison>& runs,
                                          const ReportText& text, int predict_to);

}  // namespace ringsmith::apps
