// One loss for all ranks, and who spoilt it.
//
//   rank 0: 2.31 --.
//   rank 1: 2.29 ---+--> all_gather --> every rank holds all, takes the mean in rank order
//   rank 2: nan  --'                    and sees that rank 2 has NaN
//
// A mean alone (an all-reduce) would only say that some rank has NaN. The exchange starts before
// backward and is awaited after it, so it costs no time of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/comm/process_group.hpp"

namespace ringsmith::apps {

class LossExchange {
 public:
  explicit LossExchange(comm::ProcessGroup& group);
  ~LossExchange();  // waits for an exchange in flight: it writes into this object
  LossExchange(const LossExchange&) = delete;
  LossExchange& operator=(const LossExchange&) = delete;

  void begin(double loss);
  // The mean over the ranks. If any loss is not finite, every rank throws: rank 0 an Error that
  // names the step and the rank, the others QuietStop.
  double finish(std::int64_t step);

 private:
  comm::ProcessGroup& group_;
  std::vector<double> mine_;
  std::vector<double> all_;
  comm::WorkPtr work_;
};

// Sums over ranks in rank order, of equally long vectors: small numbers for reports, off the clock.
[[nodiscard]] std::vector<double> sum_over_ranks(comm::ProcessGroup& group,
                                                 const std::vector<double>& values);
// One row of equally long values for each rank.
[[nodiscard]] std::vector<std::vector<double>> gather_rows(comm::ProcessGroup& group,
                                                           const std::vector<double>& values);

}  // namespace ringsmith::apps
