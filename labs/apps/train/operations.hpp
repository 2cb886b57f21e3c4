// The output of --profile: the operations of a step and their costs.
//
//   operation              calls/step   ms/step   share   GFLOP/s   GB/s
//   LinearBackward                  9     41.20  38.1 %     105.3   12.0
//   ...
//   between operations                     3.10   2.9 %
//
// On a GPU, an operation's time is the time of its kernels. The last row is the rest of the step:
// the loop itself, data and waiting, or on a GPU the device's idle time.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/device/profiler.hpp"

namespace ringsmith::apps {

inline constexpr double kNsPerMs = 1e6;

struct OperationProfile {
  bool on_device = false;  // rows count device_ns, else host_ns
  std::int64_t steps = 0;
  std::int64_t step_ns = 0;  // total of all steps
  std::vector<profile::Row> rows;
};

// Returns the rows with the most time and the sum of the other rows, in at most 80 columns.
[[nodiscard]] std::string operation_table(const OperationProfile& profile, std::size_t most = 20);

// {"on_device": false, "step_ms": 81.2, "rows": [{"name": "linear", "calls": 9, "ms": 12.1,
// "host_ms": 12.1, "flop": 1e9, "bytes": 1e7}]}, each number a mean over the steps.
[[nodiscard]] nlohmann::ordered_json to_json(const OperationProfile& profile);

}  // namespace ringsmith::apps
