#include "runtime/parallel/bucket.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

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

void sort_by_smallest_index(BucketAssignment& assignment) {
  const auto smallest = [&](std::size_t b) {
    return *std::min_element(assignment.buckets[b].begin(), assignment.buckets[b].end());
  };
  std::vector<std::size_t> order(assignment.buckets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return smallest(a) < smallest(b); });
  BucketAssignment sorted;
  for (const std::size_t b : order) {
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
  std::vector<OpenBucket> open;  // a handful of dtypes at most, in order of first appearance
  for (std::size_t i = 0; i < items.size(); ++i) {
    const BucketItem& item = items[i];
    auto bucket = std::find_if(open.begin(), open.end(),
                               [&](const OpenBucket& b) { return b.dtype == item.dtype; });
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

}  // namespace ringsmith
