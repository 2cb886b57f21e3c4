#include "runtime/parallel/bucket_plan.hpp"

#include <algorithm>
#include <cstdint>

namespace ringsmith {

namespace {

constexpr std::size_t kBucketAlignment = 64;  // a cache line; also what CommMemory starts on
constexpr Bytes kNoLimit(SIZE_MAX);

Bytes padded(Bytes size) {
  return Bytes((size.value + kBucketAlignment - 1) / kBucketAlignment * kBucketAlignment);
}

BucketPlan lay_out(std::span<const BucketItem> parameters, const BucketAssignment& assignment) {
  BucketPlan plan;
  plan.place.resize(parameters.size());
  Bytes start;
  for (std::size_t b = 0; b < assignment.buckets.size(); ++b) {
    BucketLayout bucket;
    bucket.start = start;
    bucket.limit = assignment.limits[b];
    bucket.dtype = parameters[static_cast<std::size_t>(assignment.buckets[b].front())].dtype;
    for (const int parameter : assignment.buckets[b]) {
      const auto p = static_cast<std::size_t>(parameter);
      plan.place[p] = {static_cast<int>(b), static_cast<int>(bucket.slots.size())};
      bucket.slots.push_back({parameter, bucket.count, parameters[p].count});
      bucket.count += parameters[p].count;
    }
    start += padded(bucket.size());
    plan.buckets.push_back(std::move(bucket));
  }
  return plan;
}

}  // namespace

Bytes BucketPlan::end() const {
  return buckets.empty() ? Bytes(0) : buckets.back().start + padded(buckets.back().size());
}

BucketPlan initial_plan(std::span<const BucketItem> parameters, const BucketCaps& caps,
                        bool find_unused) {
  if (!find_unused) {
    const Bytes limits[] = {kNoLimit};
    return lay_out(parameters, compute_bucket_assignment(parameters, limits));
  }
  const Bytes limits[] = {caps.first, caps.rest};
  BucketAssignment assignment = compute_bucket_assignment(parameters, limits);
  std::reverse(assignment.buckets.begin(), assignment.buckets.end());
  std::reverse(assignment.limits.begin(), assignment.limits.end());
  return lay_out(parameters, assignment);
}

BucketPlan rebuilt_plan(std::span<const BucketItem> parameters, const BucketCaps& caps,
                        std::span<const int> ready_order) {
  std::vector<bool> seen(parameters.size());
  std::vector<BucketItem> items;
  for (const int parameter : ready_order) {
    const auto p = static_cast<std::size_t>(parameter);
    require(parameter >= 0 && p < parameters.size() && !seen[p],
            "ready order of gradients: parameter " + std::to_string(parameter) +
                " is named twice or does not exist");
    seen[p] = true;
    items.push_back(parameters[p]);
  }
  require(items.size() == parameters.size(), "ready order of gradients names " +
                                                 std::to_string(items.size()) + " of " +
                                                 std::to_string(parameters.size()) + " parameters");
  const Bytes limits[] = {caps.first, caps.rest};
  return lay_out(parameters, compute_bucket_assignment(items, limits, ready_order));
}

Bytes arena_size(std::span<const BucketItem> parameters) {
  Bytes size;
  for (const BucketItem& item : parameters)
    size += bytes_of(item.count, size_of(item.dtype)) + Bytes(kBucketAlignment);
  return size;
}

}  // namespace ringsmith
