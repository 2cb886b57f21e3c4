#include "runtime/parallel/bucket.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/base/error.hpp"

namespace ringsmith {

namespace {

struct OpenBucket {
  DType dtype;
  std::size_t limit = 0;  // position in the list of limits
  std::vector<int> members;
  Bytes size;
};

void close(OpenBucket& open, std::span<const Bytes> limits, BucketAssignment& done) {
  done.buckets.push_back(std::exchange(open.members, {}));
  done.limits.push_back(limits[open.limit]);
  open.limit = std::min(open.limit + 1, limits.size() - 1);
  open.size = Bytes(0);
}

// Requires buckets filled in index order, so that each bucket's first index is its smallest.
void sort_by_smallest_index(BucketAssignment& assignment) {
  std::map<int, std::size_t> order;
  for (std::size_t b = 0; b < assignment.buckets.size(); ++b)
    order[assignment.buckets[b].front()] = b;
  BucketAssignment sorted;
  for (const auto& [smallest, b] : order) {
    sorted.buckets.push_back(std::move(assignment.buckets[b]));
    sorted.limits.push_back(assignment.limits[b]);
  }
  assignment = std::move(sorted);
}

}  // namespace

BucketAssignment compute_bucket_assignment(std::span<const BucketItem> items,
                                           std::span<const Bytes> limits,
                                           std::span<const int> indices) {
  require(!limits.empty(), "bucket assignment needs at least one size limit");
  require(indices.empty() || indices.size() == items.size(),
          "bucket assignment: " + std::to_string(indices.size()) + " indices for " +
              std::to_string(items.size()) + " parameters");
  BucketAssignment done;
  std::vector<OpenBucket> open;  // a few dtypes at most, in order of first appearance
  for (std::size_t i = 0; i < items.size(); ++i) {
    const BucketItem& item = items[i];
    auto bucket =
        std::ranges::find_if(open, [&](const OpenBucket& b) { return b.dtype == item.dtype; });
    if (bucket == open.end()) bucket = open.insert(open.end(), {item.dtype, 0, {}, Bytes(0)});
    bucket->members.push_back(indices.empty() ? static_cast<int>(i) : indices[i]);
    bucket->size += bytes_of(item.count, size_of(item.dtype));
    if (bucket->size >= limits[bucket->limit]) close(*bucket, limits, done);
  }
  for (OpenBucket& bucket : open)
    if (!bucket.members.empty()) close(bucket, limits, done);
  if (indices.empty()) sort_by_smallest_index(done);
  return done;
}

namespace {

constexpr std::size_t kBucketAlignment = 64;  // a cache line; CommMemory has the same alignment
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
  std::ranges::reverse(assignment.buckets);
  std::ranges::reverse(assignment.limits);
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
