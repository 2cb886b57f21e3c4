// An endless stream of this rank's batches: epoch after epoch, each in its own order, every batch
// full, so that every rank's mean loss counts equally.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/comm/process_group.hpp"
#include "runtime/data/loader.hpp"
#include "runtime/data/sampler.hpp"

namespace ringsmith::apps {

class Batches {
 public:
  // The dataset must outlive it. UsageError if it does not make one full batch for every rank.
  Batches(const Dataset& dataset, const comm::ProcessGroup& group, std::int64_t batch_size,
          std::uint64_t seed, int workers);

  [[nodiscard]] Batch next();
  [[nodiscard]] std::int64_t per_epoch() const { return loader_.batches(); }

 private:
  DistributedSampler sampler_;
  DataLoader loader_;
  std::int64_t epoch_number_ = 0;
  std::optional<DataLoader::Epoch> epoch_;
};

}  // namespace ringsmith::apps
