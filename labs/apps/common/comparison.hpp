// The same training twice: through DataParallel, and through DistributedDataParallel with the ranks
// as threads of this process. Both see the same model, the same batches and the same devices.
//
//   a batch of N * rows    DataParallel    the whole batch goes to the root, which deals it out
//                          DDP             rank r reads rows [r * rows, (r + 1) * rows) itself
//
// And once more on the CPU without either, as the arbiter.
#pragma once

#include <chrono>
#include <cstdint>

#include "runtime/device/device.hpp"

namespace ringsmith::apps {

struct ComparisonOptions {
  Device::Kind kind = Device::Kind::cuda;
  std::int64_t inputs = 64, hidden = 128, classes = 1024;  // widths of the MLP
  std::int64_t rows = 8;                                   // of each device and step
  int steps = 5;                                           // measured; kWarmup more come before
  std::uint64_t seed = 1;
  bool simulate_gil = false;
  std::chrono::milliseconds timeout{120'000};
};

// The first step allocates, and after it DDP rebuilds its buckets.
constexpr int kComparisonWarmup = 2;

struct Usage {
  double seconds = 0;  // median of the measured steps
  // Bytes a step. DataParallel: of the root, for parameters and gradients. DDP: gradients of the
  // rank that sends most, and each receives what another sends.
  double sent = 0, received = 0;
  // Bytes a step of what is neither. DataParallel: inputs, outputs and their gradients over the
  // root's link. DDP: sent by a rank to agree on which gradients there were
  // (runtime/parallel/agreement.hpp), (N - 1) records of a few words whatever the model weighs.
  double besides = 0;
  double root_memory = 0;   // bytes, peak in the measured steps: of the root or rank 0
  double other_memory = 0;  // of the other device that needs most; 0 if there is none
};

struct Comparison {
  int devices = 0;
  double parameter_bytes = 0;  // P
  Usage dp, ddp;
  // Largest |a - b| / (1 + |b|) of the trained parameters; NaN if any of them is.
  double dp_from_serial = 0, ddp_from_serial = 0, dp_from_ddp = 0;
};

// Memory is told apart by device on GPUs only; on the CPU it is 0.
[[nodiscard]] Comparison compare(int devices, const ComparisonOptions& options);

}  // namespace ringsmith::apps
