#include "labs/apps/common/batches.hpp"

namespace ringsmith::apps {

namespace {

DistributedSampler make_sampler(const Dataset& dataset, const comm::ProcessGroup& group,
                                std::int64_t batch_size, std::uint64_t seed) {
  DistributedSamplerOptions options;
  options.replicas = group.size();
  options.rank = group.rank();
  options.seed = seed;
  options.drop_last = true;  // no sample twice in an epoch
  DistributedSampler sampler(dataset.size(), options);
  require_a_batch(sampler, batch_size, /*drop_last_batch=*/true);
  return sampler;
}

}  // namespace

Batches::Batches(const Dataset& dataset, const comm::ProcessGroup& group, std::int64_t batch_size,
                 std::uint64_t seed, int workers)
    : sampler_(make_sampler(dataset, group, batch_size, seed)),
      loader_(dataset, sampler_, {batch_size, workers, 2, /*drop_last=*/true}) {}

Batch Batches::next() {
  while (true) {
    if (!epoch_) {
      sampler_.set_epoch(epoch_number_++);
      epoch_.emplace(loader_.epoch());
    }
    if (std::optional<Batch> batch = epoch_->next()) return std::move(*batch);
    epoch_.reset();
  }
}

}  // namespace ringsmith::apps
