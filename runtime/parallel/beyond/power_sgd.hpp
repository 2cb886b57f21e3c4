// PowerSGD: sends the gradients of matrices as two thin factors.
//
//   M (n x m)  ~  P (n x r)  Q^T (r x m)         n m numbers become (n + m) r
//
//   each rank   M += error of the last step      error feedback: nothing is lost, only delayed
//               P = M Q                          Q: from the last step (warm start), or random
//   all ranks   P = sum of P;  P = orthogonalised P
//   each rank   Q = M^T P
//   all ranks   Q = mean of Q
//   each rank   error = M - P Q^T                kept for the next step
//               M = P Q^T                        the same on every rank
//
// One iteration of the power method per training step: Q converges to the right singular vectors
// with the largest singular values of the mean gradient. Vogels, Karimireddy, Jaggi, "PowerSGD:
// practical low-rank gradient compression for distributed optimization", NeurIPS 2019. Rules,
// defaults and random numbers match PyTorch's powerSGD_hook; the order of the sums differs, so
// results agree up to rounding.
//
// An infinity would remain in the error and in Q forever. Therefore the hook keeps a copy of the
// error and of Q from before the last backward, and restores both if the step is skipped. Errors
// contain scaled gradients, so they are multiplied by new scale / old scale when GradScaler changes
// its scale. In PyTorch's hook, k overflows in a row leave errors 2^k times too large.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "runtime/base/rng.hpp"
#include "runtime/parallel/comm_hooks.hpp"

namespace ringsmith {

struct PowerSgdOptions {
  int matrix_approximation_rank = 1;  // r
  // Number of backward passes at the beginning that use allreduce_hook. At least 2 with error
  // feedback or warm start (UsageError), because DDP rebuilds its buckets after the first pass.
  std::int64_t start_powersgd_iter = 1000;
  // A gradient is compressed if (n + m) r times this rate is less than n m. n: its first dimension;
  // m: the product of its other dimensions; r: matrix_approximation_rank, but at most n and m.
  double min_compression_rate = 2;
  bool use_error_feedback = true;
  bool warm_start = true;
  double orthogonalization_epsilon = 0;  // added to the norm of each column of P and Q
  std::uint64_t random_seed = 0;         // for the first Q; the same on every rank
};

class PowerSgdState {
 public:
  PowerSgdState(std::shared_ptr<comm::ProcessGroup> group, const PowerSgdOptions& options);

  [[nodiscard]] Future exchange(const GradBucket& bucket);
  // Restores the state from before the last backward pass (CommHook::skipped).
  void forget();

  // State carried from one backward pass to the next.
  struct Memory {
    std::map<int, Tensor> errors, qs;  // by bucket index; qs: for the warm start
    double loss_scale = 0;             // of the errors; 0: no scaler
    Generator seeds;
    std::int64_t iteration = 0;  // number of backward passes
    // Elements of all gradients since compression began, and elements sent in their place.
    std::int64_t before = 0, after = 0;
  };
  [[nodiscard]] const Memory& memory() const { return now_; }

 private:
  struct ExchangeState;
  [[nodiscard]] std::shared_ptr<ExchangeState> prepare(const GradBucket& bucket);
  void rescale(double loss_scale);
  void draw(const ExchangeState& state);
  [[nodiscard]] Tensor finish(const GradBucket& bucket, ExchangeState& state);

  std::shared_ptr<comm::ProcessGroup> group_;
  PowerSgdOptions options_;
  CommHook plain_;
  TravelTensors ps_, qs_, rest_;  // by bucket
  Memory now_, last_;             // last_: the state at the beginning of the last pass
};

[[nodiscard]] CommHook power_sgd_hook(std::shared_ptr<PowerSgdState> state);

}  // namespace ringsmith
