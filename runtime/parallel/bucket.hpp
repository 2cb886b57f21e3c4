// Which gradients travel together: the bucket assignment of DistributedDataParallel.
//
// One all-reduce per parameter pays the latency of a collective for every bias; one all-reduce for
// the whole model cannot start before backward has ended. Buckets are the middle: parameters are
// appended to an open bucket until it has reached its limit, the bucket is closed, the next one
// opened.
//
//   sizes (bytes)   400 800 400 200        limit 400
//   buckets         [0] [1] [2] [3]        the tensor that crosses the limit stays in: buckets
//                                          overshoot, and a tensor is never split
//
// A bucket holds one dtype, so there is one open bucket for each. Each dtype walks its own copy of
// the list of limits and stays on the last: {1 MiB, 25 MiB} makes the first bucket small, so that
// its all-reduce starts early. The rule, and with it every bit of the sums (a bucket's length
// decides the chunks of the ring), is PyTorch's: Li et al., "PyTorch Distributed", VLDB 2020,
// section 3.2.3.
#pragma once

#include <span>
#include <vector>

#include "runtime/base/dtype.hpp"
#include "runtime/base/units.hpp"

namespace ringsmith {

constexpr Bytes kFirstBucketCap = MiB(1);

struct BucketItem {
  Elements count;
  DType dtype = DType::f32;
};

struct BucketAssignment {
  std::vector<std::vector<int>> buckets;  // indices of parameters, in the order of their slots
  std::vector<Bytes> limits;              // limits[i] was in force for buckets[i]
};

// items in the order in which they are to be laid out; at least one limit (UsageError).
// Without indices, item i is parameter i and the buckets come sorted by their smallest index. With
// indices (ready order, at the rebuild), item i is parameter indices[i] and the buckets come in the
// order in which they were closed, then those still open, by first appearance.
[[nodiscard]] BucketAssignment compute_bucket_assignment(std::span<const BucketItem> items,
                                                         std::span<const Bytes> limits,
                                                         std::span<const int> indices = {});

}  // namespace ringsmith
