#include "labs/apps/common/agreement.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <exception>
#include <fmt/format.h>
#include <span>
#include <thread>

namespace ringsmith::apps {

namespace {
constexpr std::chrono::seconds kLastWords{2};

// Returns 0 for a cause, 1 for its consequence on another rank, and 2 if another rank reports it.
int distance_from_cause(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const QuietStop&) {
    return 2;
  } catch (const PeerLost&) {
    return 1;
  } catch (const Aborted&) {
    return 1;
  } catch (...) {
    return 0;
  }
}

}  // namespace

void together(comm::ProcessGroup& group, const std::function<void()>& body) {
  std::exception_ptr mine;
  std::array<std::int32_t, 1> code{0};
  try {
    body();
  } catch (const CommError&) {
    throw;  // the ranks cannot agree through a broken group
  } catch (const Error& e) {
    mine = std::current_exception();
    code[0] = static_cast<std::int32_t>(e.exit_code());
  }
  std::vector<std::int32_t> codes(static_cast<std::size_t>(group.size()));
  group.all_gather(std::span<const std::int32_t>(code), std::span<std::int32_t>(codes));
  for (int r = 0; r < group.size(); ++r) {
    const std::int32_t c = codes[static_cast<std::size_t>(r)];
    if (c == 0) continue;
    if (r == group.rank()) std::rethrow_exception(mine);
    throw QuietStop(static_cast<ExitCode>(c));
  }
}

void rethrow_cause(const std::vector<std::exception_ptr>& errors) {
  for (int distance = 0; distance <= 2; ++distance)
    for (const std::exception_ptr& error : errors)
      if (error && distance_from_cause(error) == distance) std::rethrow_exception(error);
}

int run_program(const char* name, const std::function<int()>& body) {
  return run_main(name, [&]() -> int {
    try {
      return body();
    } catch (const QuietStop& e) {
      // mpirun kills all ranks as soon as one has failed. Wait, so that the rank that reports the
      // error can print it first.
      if (e.exit_code() != ExitCode::preempted) std::this_thread::sleep_for(kLastWords);
      // A launcher would have terminated this rank by now. Without a launcher, this rank may be the
      // only one that knows about the error.
      if (!e.unsaid().empty()) throw UsageError(e.unsaid());
      return static_cast<int>(e.exit_code());
    }
  });
}

LossExchange::LossExchange(comm::ProcessGroup& group)
    : group_(group), mine_(2), all_(2 * static_cast<std::size_t>(group.size())) {}

LossExchange::~LossExchange() {
  try {
    if (work_ != nullptr) work_->wait();
  } catch (...) {  // NOLINT(bugprone-empty-catch): only reached while another error is thrown
  }
}

void LossExchange::begin(double loss, Wish wish) {
  mine_ = {loss, static_cast<double>(wish)};
  work_ = group_.all_gather_async(std::span<const double>(mine_), std::span<double>(all_));
}

double LossExchange::finish(std::int64_t step) {
  const comm::WorkPtr work = std::move(work_);
  work->wait();
  double sum = 0;
  wish_ = Wish::none;
  for (std::size_t r = 0; 2 * r < all_.size(); ++r) {
    const double loss = all_[2 * r];
    if (!std::isfinite(loss)) {
      if (group_.rank() != 0) throw QuietStop(ExitCode::internal);
      throw Error(
          fmt::format("the loss is {} at step {} on rank {}; training has stopped, no model was "
                      "written: try a smaller --lr, or look for bad values in the data",
                      std::isnan(loss) ? "NaN" : "infinite", step, r));
    }
    sum += loss;
    wish_ = std::max(wish_, static_cast<Wish>(all_[2 * r + 1]));
  }
  return sum / group_.size();
}

std::vector<std::vector<double>> gather_rows(comm::ProcessGroup& group,
                                             const std::vector<double>& values) {
  std::vector<double> flat(values.size() * static_cast<std::size_t>(group.size()));
  group.all_gather(std::span<const double>(values), std::span<double>(flat));
  std::vector<std::vector<double>> rows;
  for (int r = 0; r < group.size(); ++r) {
    const auto row = flat.begin() + r * std::ssize(values);
    rows.emplace_back(row, row + std::ssize(values));
  }
  return rows;
}

std::vector<double> sum_over_ranks(comm::ProcessGroup& group, const std::vector<double>& values) {
  std::vector<double> sum(values.size(), 0.0);
  for (const auto& row : gather_rows(group, values))
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += row[i];
  return sum;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t n = values.size();
  return n == 0 ? 0 : (values[(n - 1) / 2] + values[n / 2]) / 2;
}

}  // namespace ringsmith::apps
