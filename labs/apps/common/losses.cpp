#include "labs/apps/common/losses.hpp"

#include <cmath>
#include <fmt/format.h>
#include <span>

#include "labs/apps/common/agreement.hpp"

namespace ringsmith::apps {

LossExchange::LossExchange(comm::ProcessGroup& group)
    : group_(group), mine_(1), all_(static_cast<std::size_t>(group.size())) {}

LossExchange::~LossExchange() {
  try {
    if (work_ != nullptr) work_->wait();
  } catch (...) {  // NOLINT(bugprone-empty-catch): only reached while another error is on its way
  }
}

void LossExchange::begin(double loss) {
  mine_[0] = loss;
  work_ = group_.all_gather_async(std::span<const double>(mine_), std::span<double>(all_));
}

double LossExchange::finish(std::int64_t step) {
  const comm::WorkPtr work = std::move(work_);
  work->wait();
  double sum = 0;
  for (std::size_t r = 0; r < all_.size(); ++r) {
    if (!std::isfinite(all_[r])) {
      if (group_.rank() != 0) throw QuietStop(ExitCode::internal);
      throw Error(
          fmt::format("the loss is {} at step {} on rank {}; training has stopped, no model was "
                      "written: try a smaller --lr, or look for bad values in the data",
                      std::isnan(all_[r]) ? "NaN" : "infinite", step, r));
    }
    sum += all_[r];
  }
  return sum / static_cast<double>(all_.size());
}

std::vector<std::vector<double>> gather_rows(comm::ProcessGroup& group,
                                             const std::vector<double>& values) {
  std::vector<double> flat(values.size() * static_cast<std::size_t>(group.size()));
  group.all_gather(std::span<const double>(values), std::span<double>(flat));
  std::vector<std::vector<double>> rows;
  for (int r = 0; r < group.size(); ++r) {
    const auto begin = flat.begin() + r * static_cast<std::ptrdiff_t>(values.size());
    rows.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(values.size()));
  }
  return rows;
}

std::vector<double> sum_over_ranks(comm::ProcessGroup& group, const std::vector<double>& values) {
  std::vector<double> sum(values.size(), 0.0);
  for (const auto& row : gather_rows(group, values))
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += row[i];
  return sum;
}

}  // namespace ringsmith::apps
