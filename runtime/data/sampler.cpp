#include "runtime/data/sampler.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include "runtime/base/error.hpp"

namespace ringsmith {
namespace {

// Limits that keep positions from overflowing.
constexpr std::int64_t kMostSamples = std::int64_t{1} << 53;
constexpr std::int64_t kMostRanks = 1 << 20;

std::int64_t checked_size(std::int64_t n) {
  require(n >= 0 && n <= kMostSamples, "a dataset cannot have " + std::to_string(n) + " samples");
  return n;
}

std::vector<std::int64_t> identity(std::int64_t n) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  return order;
}

std::string count(std::int64_t n, const std::string& what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

}  // namespace

SequentialSampler::SequentialSampler(std::int64_t dataset_size)
    : dataset_size_(checked_size(dataset_size)) {}

std::vector<std::int64_t> SequentialSampler::indices() { return identity(dataset_size_); }

RandomSampler::RandomSampler(std::int64_t dataset_size, Generator& g)
    : dataset_size_(checked_size(dataset_size)), generator_(g) {}

std::vector<std::int64_t> RandomSampler::indices() {
  Generator fresh(generator_.random64() & ~(1ULL << 63));
  return randperm(dataset_size_, fresh);
}

DistributedSampler::DistributedSampler(std::int64_t dataset_size, DistributedSamplerOptions options)
    : dataset_size_(checked_size(dataset_size)), options_(options) {
  require(options.replicas >= 1 && options.replicas <= kMostRanks,
          "DistributedSampler: replicas must be from 1 to " + std::to_string(kMostRanks) +
              ", got " + std::to_string(options.replicas));
  require(options.rank >= 0 && options.rank < options.replicas,
          "DistributedSampler: invalid rank " + std::to_string(options.rank) +
              ", it must be in [0, " + std::to_string(options.replicas - 1) + "]");
  samples_ = share_of(dataset_size_);
}

std::int64_t DistributedSampler::share_of(std::int64_t samples) const {
  const std::int64_t world = options_.replicas;
  return std::max<std::int64_t>(0, options_.drop_last ? samples : samples + world - 1) / world;
}

void DistributedSampler::set_epoch(std::int64_t epoch, std::int64_t start) {
  const std::int64_t whole = share_of(dataset_size_);
  require(start >= 0 && start <= whole, "DistributedSampler: cannot start at sample " +
                                            std::to_string(start) + " of an epoch of " +
                                            std::to_string(whole) + " samples per rank");
  load_state({epoch, start * options_.replicas});
}

SamplerState DistributedSampler::state(std::int64_t taken) const {
  return {state_.epoch, state_.used + taken * options_.replicas};
}

void DistributedSampler::load_state(const SamplerState& state) {
  // The last samples may be padding: at most one per rank beyond the dataset.
  require(state.used >= 0 && state.used <= dataset_size_ + kMostRanks,
          "DistributedSampler: cannot continue at sample " + std::to_string(state.used) +
              " of an epoch of " + count(dataset_size_, "sample"));
  require(state.epoch >= -kMostSamples && state.epoch <= kMostSamples,
          "DistributedSampler: cannot continue at epoch " + std::to_string(state.epoch));
  state_ = state;
  samples_ = share_of(dataset_size_ - state.used);
}

std::vector<std::int64_t> DistributedSampler::indices() {
  Generator g(options_.seed + static_cast<std::uint64_t>(state_.epoch));
  const std::vector<std::int64_t> order =
      options_.shuffle ? randperm(dataset_size_, g) : identity(dataset_size_);
  std::vector<std::int64_t> mine;
  mine.reserve(static_cast<std::size_t>(samples_));
  for (std::int64_t i = 0; i < samples_; ++i) {
    // Padding repeats the order from its beginning, as often as needed.
    const std::int64_t position =
        (state_.used + options_.rank + i * options_.replicas) % dataset_size_;
    mine.push_back(order[static_cast<std::size_t>(position)]);
  }
  return mine;
}

StepSampler::StepSampler(std::int64_t dataset_size, std::int64_t batch, std::uint64_t seed,
                         std::int64_t most)
    : dataset_size_(checked_size(dataset_size)), batch_(batch), most_(most), seed_(seed) {
  require(most >= 1, "StepSampler: a step must have at least 1 batch, got " + std::to_string(most));
  require_a_batch(DistributedSampler(dataset_size, {.drop_last = true}), batch, true);
}

SamplerState StepSampler::next(int ranks) const {
  const std::int64_t taken = ranks * batch_;
  require(taken <= dataset_size_, "not one full batch for each of " + count(ranks, "rank") + ": " +
                                      count(dataset_size_, "sample") + ", batches of " +
                                      std::to_string(batch_));
  return state_.used + taken <= dataset_size_ ? state_ : SamplerState{state_.epoch + 1, 0};
}

std::int64_t StepSampler::batches(int ranks) const {
  return std::min(most_, (dataset_size_ - next(ranks).used) / (ranks * batch_));
}

std::vector<std::int64_t> StepSampler::indices(int rank, int ranks) const {
  const SamplerState begin = next(ranks);
  if (begin.epoch != shuffled_) {
    DistributedSampler whole(dataset_size_, {.seed = seed_});
    whole.set_epoch(begin.epoch);
    order_ = whole.indices();
    shuffled_ = begin.epoch;
  }
  std::vector<std::int64_t> mine;
  const std::int64_t samples = batches(ranks) * batch_;
  for (std::int64_t i = 0; i < samples; ++i)
    mine.push_back(order_[static_cast<std::size_t>(begin.used + rank + i * ranks)]);
  return mine;
}

void StepSampler::step_done(int ranks) {
  const std::int64_t taken = batches(ranks) * ranks * batch_;
  state_ = next(ranks);
  state_.used += taken;
}

void StepSampler::load_state(const SamplerState& state) {
  require(state.epoch >= 0 && state.epoch <= kMostSamples && state.used >= 0 &&
              state.used <= dataset_size_,
          "StepSampler: cannot continue at sample " + std::to_string(state.used) + " of epoch " +
              std::to_string(state.epoch));
  state_ = state;
}

void require_a_batch(const DistributedSampler& sampler, std::int64_t batch_size,
                     bool drop_last_batch) {
  require(batch_size >= 1, "batch size must be at least 1, got " + std::to_string(batch_size));
  const std::int64_t samples = sampler.dataset_size();
  const std::int64_t world = sampler.options().replicas;
  const bool cut = sampler.options().drop_last;
  const std::string sizes = count(samples, "sample") + " for " + count(world, "rank");
  require(samples > 0, "the dataset is empty: give at least one sample for each rank");
  require(samples >= world || !cut,
          "dataset smaller than the world: " + sizes + "; give more data or start fewer ranks");
  const std::int64_t share = (cut ? samples : samples + world - 1) / world;
  require(share >= batch_size || !drop_last_batch,
          "not one full batch: " + sizes + ", " + std::to_string(share) +
              " each, but the batch size is " + std::to_string(batch_size) +
              "; give more data, a smaller batch or fewer ranks");
}

}  // namespace ringsmith
