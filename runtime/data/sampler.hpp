// Samplers determine the order of the samples and assign each sample to a rank.
//
//   permutation   4 1 7 5 3 9 0 8 6 2 | 4 1      L = 10, R = 3: padded with its own beginning
//   rank 0        4     5     0     2            strided, not contiguous, so that the samples of
//   rank 1          1     3     8     4          all ranks in one step are the next section of
//   rank 2            7     9     6     1        the permutation
//
// The indices are the same as torch.utils.data.DistributedSampler's for the same arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/rng.hpp"

namespace ringsmith {

class Sampler {
 public:
  virtual ~Sampler() = default;
  // The indices of one pass, in order. RandomSampler returns a different order on each call.
  [[nodiscard]] virtual std::vector<std::int64_t> indices() = 0;
  [[nodiscard]] virtual std::int64_t size() const = 0;            // length of indices()
  [[nodiscard]] virtual std::int64_t epoch() const { return 0; }  // of indices(); 0 if not counted
};

class SequentialSampler : public Sampler {
 public:
  explicit SequentialSampler(std::int64_t dataset_size);
  [[nodiscard]] std::vector<std::int64_t> indices() override;
  [[nodiscard]] std::int64_t size() const override { return dataset_size_; }

 private:
  std::int64_t dataset_size_;
};

// Each pass draws a 63-bit seed from g and permutes with a new generator of that seed, as
// torch.utils.data.RandomSampler does. (PyTorch's DataLoader first draws another seed.)
class RandomSampler : public Sampler {
 public:
  explicit RandomSampler(std::int64_t dataset_size, Generator& g = default_generator());
  [[nodiscard]] std::vector<std::int64_t> indices() override;
  [[nodiscard]] std::int64_t size() const override { return dataset_size_; }

 private:
  std::int64_t dataset_size_;
  Generator& generator_;
};

struct DistributedSamplerOptions {
  int replicas = 1;  // R, usually the world size
  int rank = 0;      // in [0, replicas)
  bool shuffle = true;
  std::uint64_t seed = 0;  // same on all ranks; an epoch's order is derived from seed + epoch
  bool drop_last = false;  // truncates the dataset to a multiple of R, instead of repeating samples
};

// The progress of all ranks: the first `used` positions of the epoch's permutation are done. R'
// ranks can thus continue from a checkpoint of R ranks without repeating or omitting a sample:
//
//   permutation   4 1 7 5 3 9 | 0 8 6 2      R = 3, two samples each: used = 6
//   rank 0 of 2                 0   6
//   rank 1 of 2                   8   2
struct SamplerState {
  std::int64_t epoch = 0;
  std::int64_t used = 0;
};

class DistributedSampler : public Sampler {
 public:
  DistributedSampler(std::int64_t dataset_size, DistributedSamplerOptions options);

  // Call it before each epoch; otherwise every epoch has the order of epoch 0. To resume within an
  // epoch, pass as `start` the number of this rank's samples that were already used.
  void set_epoch(std::int64_t epoch, std::int64_t start = 0);

  // The state after every rank has taken `taken` of its indices; the same on every rank.
  [[nodiscard]] SamplerState state(std::int64_t taken) const;
  // Replaces set_epoch() for the rest of the state's epoch. The state may come from a run with a
  // different number of ranks. Throws UsageError for an impossible state.
  void load_state(const SamplerState& state);

  [[nodiscard]] std::vector<std::int64_t> indices() override;
  // The same on every rank, because of padding or truncation.
  [[nodiscard]] std::int64_t size() const override { return samples_; }
  [[nodiscard]] std::int64_t epoch() const override { return state_.epoch; }
  [[nodiscard]] const DistributedSamplerOptions& options() const { return options_; }
  [[nodiscard]] std::int64_t dataset_size() const { return dataset_size_; }

 private:
  [[nodiscard]] std::int64_t share_of(std::int64_t samples) const;  // per rank

  std::int64_t dataset_size_;
  DistributedSamplerOptions options_;
  SamplerState state_;        // where indices() begins
  std::int64_t samples_ = 0;  // per rank, from there on
};

// Distributes samples step by step among a varying number of ranks. A step consists of the next
// ranks * batch positions of the epoch's permutation, distributed as DistributedSampler does. A
// step that fails is distributed again, among the ranks that are present in the next attempt:
//
//   permutation   4 1 7 5 3 9 | 0 8 6 2 |      batch 2: a step of 3 ranks, then one of 2
//   rank 0        4     5       0   6
//   rank 1          1     3       8   2
//   rank 2            7     9
//
// A step can have several batches per rank, whose gradients are accumulated. The last step of an
// epoch has as many batches as are left. Positions that do not fill a batch for each rank are
// skipped, as with drop_last. No sample is repeated within an epoch, even if ranks join or leave.
class StepSampler {
 public:
  // most: maximum batches per rank and step. Throws UsageError if most or batch is below 1, or the
  // dataset is smaller than a batch.
  StepSampler(std::int64_t dataset_size, std::int64_t batch, std::uint64_t seed,
              std::int64_t most = 1);

  // Returns the indices of one of `ranks` ranks in the next step, batch after batch. Does not
  // advance to that step. Throws UsageError if the dataset is smaller than a batch for each rank.
  [[nodiscard]] std::vector<std::int64_t> indices(int rank, int ranks) const;
  // Batches per rank in the next step with `ranks` ranks: from 1 to `most`.
  [[nodiscard]] std::int64_t batches(int ranks) const;
  // Epoch of the next step with `ranks` ranks.
  [[nodiscard]] std::int64_t epoch(int ranks) const { return next(ranks).epoch; }
  void step_done(int ranks);
  // The state before the next step, which may be the first of a new epoch.
  [[nodiscard]] const SamplerState& state() const { return state_; }
  void load_state(const SamplerState& state);

 private:
  [[nodiscard]] SamplerState next(int ranks) const;  // start of the next step

  std::int64_t dataset_size_, batch_, most_;
  std::uint64_t seed_;
  SamplerState state_;
  mutable std::int64_t shuffled_ = -1;  // the epoch of order_
  mutable std::vector<std::int64_t> order_;
};

// Throws UsageError if a whole epoch has no batch for the ranks: an empty dataset; a dataset
// smaller than the world when the sampler truncates; or, with drop_last_batch, a rank's share
// smaller than one batch.
void require_a_batch(const DistributedSampler& sampler, std::int64_t batch_size,
                     bool drop_last_batch);

}  // namespace ringsmith
