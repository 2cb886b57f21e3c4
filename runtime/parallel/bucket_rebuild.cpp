#include "runtime/parallel/bucket_rebuild.hpp"

#include <utility>

namespace ringsmith {

bool BucketRebuild::skip() {
  if (!std::exchange(may_skip_, false)) return false;
  --passes_;
  return true;
}

std::vector<int> BucketRebuild::order() const {
  if (done()) return rebuilt_order_;
  return due() ? last_order_ : std::vector<int>();
}

void BucketRebuild::run_if_due(GradientBuckets& buckets) {
  if (!due()) return;
  std::vector<std::int32_t> order(last_order_.begin(), last_order_.end());
  buckets.group()->broadcast(std::span<std::int32_t>(order), 0);
  run(buckets, {order.begin(), order.end()});
}

void BucketRebuild::run(GradientBuckets& buckets, std::vector<int> order) {
  buckets.install(rebuilt_plan(buckets.items(), caps_, order));
  rebuilt_order_ = std::move(order);
}

}  // namespace ringsmith
