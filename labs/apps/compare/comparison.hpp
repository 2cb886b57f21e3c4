// The measurements of dp_vs_ddp as a table, an SVG, and an HTML page with both.
//
// Beyond the measured numbers of devices, the curves follow the cost model: bytes follow their
// formulas, time is overhead + alpha * steps + beta * bytes, and memory is a constant plus, at
// DataParallel's root, a term for the rows of all devices. The constants are fitted to the
// measurements.
#pragma once

#include <string>
#include <vector>

namespace ringsmith::apps {

struct Usage {
  double seconds = 0;  // median of the measured steps
  // Bytes per step. DataParallel: parameters and gradients, at the root. DDP: gradients, at the
  // rank that sends the most, which receives as much.
  double sent = 0, received = 0;
  // Other bytes per step. DataParallel: inputs, outputs and the outputs' gradients, over the root's
  // links. DDP: the N - 1 short records that each rank sends to agree on which gradients exist
  // (runtime/parallel/agreement.hpp).
  double besides = 0;
  double root_memory = 0;   // bytes, peak in the measured steps, of the root or rank 0
  double other_memory = 0;  // of the other device that needs the most; 0 if there is none
};

// One measured comparison. On the CPU, the memory figures are 0.
struct Comparison {
  int devices = 0;
  double parameter_bytes = 0;  // P
  Usage dp, ddp;
  // Largest |a - b| / (1 + |b|) of the trained parameters; NaN if any difference is NaN.
  double dp_from_serial = 0, ddp_from_serial = 0, dp_from_ddp = 0;
};

// Bytes per step that the formulas predict for n devices and P bytes of parameters.
[[nodiscard]] double root_bytes(double n, double parameter_bytes);  // DataParallel: 2 (n - 1) P
[[nodiscard]] double rank_bytes(double n, double parameter_bytes);  // DDP: 2 P (n - 1) / n

// Returns the largest relative deviation of the counters from these formulas; NaN counts as
// infinite.
[[nodiscard]] double deviation_from_formulas(const std::vector<Comparison>& runs);

struct ReportText {
  std::string setting;  // model, rows, devices: one line
  std::string timing;   // how times were obtained: "simulated: ..." or "measured: ..."
  bool simulated = false;
};

[[nodiscard]] std::string comparison_table(const std::vector<Comparison>& runs);
[[nodiscard]] std::string comparison_svg(const std::vector<Comparison>& runs,
                                         const ReportText& text, int predict_to);
[[nodiscard]] std::string comparison_html(const std::vector<Comparison>& runs,
                                          const ReportText& text, int predict_to);

// Fits the constants of a cost model to measurements by least squares of relative errors, so that
// small measurements matter as much as large ones. Constants are non-negative: a negative latency
// would fit noise and give nonsense far beyond the measured range, where the model is used.
//
// terms[i][k]: term k at measurement i. The number of terms must be small, because all subsets are
// tried. All values must be positive. Returns one constant per term.
[[nodiscard]] std::vector<double> fit_non_negative(const std::vector<std::vector<double>>& terms,
                                                   const std::vector<double>& values);

[[nodiscard]] double predict(const std::vector<double>& constants,
                             const std::vector<double>& terms);

}  // namespace ringsmith::apps
