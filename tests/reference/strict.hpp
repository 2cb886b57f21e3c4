// Golden trajectories: runs of PyTorch's DistributedDataParallel over gloo, with every sum in plain
// scalar order and every parameter after every step. With the oracle kernels and gloo's ring,
// ringsmith must have the same bits.
//
// Model: Linear(in, hidden) - ReLU - Linear(hidden, out), mean-squared error, SGD with momentum.
// The parameters are in the order w1, b1, w2, b2.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/tensor/tensor.hpp"

namespace ringsmith::reference {

struct StrictStep {
  std::int64_t epoch = 0;
  std::vector<std::vector<std::int64_t>> indices;  // [rank]: the rows of its batch
  std::vector<float> loss;                         // [rank]
  std::vector<Tensor> params;                      // after the step, the same on all ranks
};

struct StrictRun {
  int world = 1;
  std::int64_t samples = 0;
  double lr = 0, momentum = 0;
  std::int64_t sampler_seed = 0;
  std::int64_t epochs = 0, batch = 0;
  Tensor x, y;                            // (samples, in), (samples, out)
  std::vector<std::vector<Tensor>> init;  // [rank]: before wrapping; wrapping copies rank 0's
  std::vector<StrictStep> steps;
};

[[nodiscard]] StrictRun load_strict(const std::string& name);  // a name of list("strict")

[[nodiscard]] Tensor rows(const Tensor& t, const std::vector<std::int64_t>& indices);

// Returns "" if both have the same shape and bits, otherwise one line with the first difference.
[[nodiscard]] std::string bit_difference(const Tensor& got, const Tensor& want);

}  // namespace ringsmith::reference
