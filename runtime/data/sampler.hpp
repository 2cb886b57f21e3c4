// Samplers: which sample comes when, and on which rank.
//
//   permutation   4 1 7 5 3 9 0 8 6 2 | 4 1      L = 10, R = 3: padded with its own beginning
//   rank 0        4     5     0     2            strided, not contiguous, so that step t of all
//   rank 1          1     3     8     4          ranks together covers the same stretch of the
//   rank 2            7     9     6     1        permutation for any number of ranks
//
// The indices are those of torch.utils.data.DistributedSampler for the same arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/rng.hpp"

namespace ringsmith {

class Sampler {
 public:
  virtual ~Sampler() = default;
  // The indices of one pass, in order. RandomSampler gives another order on every call.
  [[nodiscard]] virtual std::vector<std::int64_t> indices() = 0;
  [[nodiscard]] virtual std::int64_t size() const = 0;            // how many indices() returns
  [[nodiscard]] virtual std::int64_t epoch() const { return 0; }  // of indices(), if it counts them
};

class SequentialSampler : public Sampler {
 public:
  explicit SequentialSampler(std::int64_t dataset_size);
  [[nodiscard]] std::vector<std::int64_t> indices() override;
  [[nodiscard]] std::int64_t size() const override { return dataset_size_; }

 private:
  std::int64_t dataset_size_;
};

// Each pass draws a 63-bit seed from g and permutes with a fresh generator of that seed, as
// torch.utils.data.RandomSampler does. (Torch's DataLoader draws one more seed from g before.)
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
  std::uint64_t seed = 0;  // equal on all ranks; the order of an epoch comes from seed + epoch
  bool drop_last = false;  // cut the dataset to a multiple of R, instead of repeating samples
};

// Where all ranks together are: the first `used` places of the epoch's permutation are done. So a
// checkpoint of R ranks can be dealt out to R', and no sample comes twice or never:
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

  // Must be called before each epoch, or every epoch has the order of epoch 0. To resume in the
  // middle of an epoch, start is how many of this rank's samples were used already.
  void set_epoch(std::int64_t epoch, std::int64_t start = 0);

  // When every rank has taken so many of what indices() gave. The same on every rank.
  [[nodiscard]] SamplerState state(std::int64_t taken) const;
  // Instead of set_epoch(), for the rest of that epoch; from any number of ranks. UsageError if no
  // state() can have given it.
  void load_state(const SamplerState& state);

  [[nodiscard]] std::vector<std::int64_t> indices() override;
  // Equal on every rank: after padding or cutting no rank ever has one sample more than another.
  [[nodiscard]] std::int64_t size() const override { return samples_; }
  [[nodiscard]] std::int64_t epoch() const override { return state_.epoch; }
  [[nodiscard]] const DistributedSamplerOptions& options() const { return options_; }
  [[nodiscard]] std::int64_t dataset_size() const { return dataset_size_; }

 private:
  [[nodiscard]] std::int64_t share_of(std::int64_t samples) const;  // of each rank

  std::int64_t dataset_size_;
  DistributedSamplerOptions options_;
  SamplerState state_;        // where indices() begins
  std::int64_t samples_ = 0;  // of each rank from there on
};

// The samples of one step after the other, for as many ranks as are there: those of a step are the
// next ranks * batch places of the epoch's permutation, dealt out as DistributedSampler does it, to
// which it is equal while the number of ranks stays. A step that fails is dealt anew, to whoever is
// there then:
//
//   permutation   4 1 7 5 3 9 | 0 8 6 2 |      batch 2: a step of 3 ranks, then one of 2
//   rank 0        4     5       0   6
//   rank 1          1     3       8   2
//   rank 2            7     9
//
// A step can have several batches of each rank, to accumulate their gradients; the last one of an
// epoch has as many as are left. An epoch ends when fewer places are left than one batch for each
// rank: those are left out of it, as drop_last does. So no sample comes twice in an epoch, whatever
// ranks come and go.
class StepSampler {
 public:
  // most: batches of each rank in a step, at least 1. UsageError if the dataset is smaller than a
  // batch.
  StepSampler(std::int64_t dataset_size, std::int64_t batch, std::uint64_t seed,
              std::int64_t most = 1);

  // Of one of so many ranks, in the step to come: batch after batch. Changes nothing. UsageError if
  // the dataset is smaller than a batch for each rank.
  [[nodiscard]] std::vector<std::int64_t> indices(int rank, int ranks) const;
  // Of each rank in the step to come, if so many ranks do it: from 1 to `most`.
  [[nodiscard]] std::int64_t batches(int ranks) const;
  // Of the step to come, if so many ranks do it.
  [[nodiscard]] std::int64_t epoch(int ranks) const { return next(ranks).epoch; }
  void step_done(int ranks);  // the step of so many ranks counts
  // Before the step to come; a new epoch may begin with it.
  [[nodiscard]] const SamplerState& state() const { return state_; }
  void load_state(const SamplerState& state);

 private:
  [[nodiscard]] SamplerState next(int ranks) const;  // where the step begins

  std::int64_t dataset_size_, batch_, most_;
  std::uint64_t seed_;
  SamplerState state_;
  mutable std::int64_t shuffled_ = -1;  // the epoch of order_
  mutable std::vector<std::int64_t> order_;
};

// UsageError if a whole epoch gives the ranks no batch at all: an empty dataset; one smaller than
// the world when the sampler cuts; or, with drop_last_batch, a rank's share smaller than one batch.
// A training run wants this error; the sampler itself pads or yields nothing, as PyTorch's does.
void require_a_batch(const DistributedSampler& sampler, std::int64_t batch_size,
                     bool drop_last_batch);

}  // namespace ringsmith
