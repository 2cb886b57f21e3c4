// Buckets: which gradients are reduced together, and their positions. gradient_buckets.hpp manages
// their memory.
//
// One all-reduce per parameter pays the latency of a collective for every bias; one all-reduce for
// the whole model cannot start before backward has ended. Buckets are the compromise: parameters
// are appended to an open bucket until it reaches its limit, and then the next bucket is opened.
//
//   sizes (bytes)   400 800 400 200        limit 400
//   buckets         [0] [1] [2] [3]        the tensor that crosses the limit stays in: buckets
//                                          overshoot, and a tensor is never split
//
// A bucket holds one dtype, so there is one open bucket per dtype. Each dtype advances through its
// own copy of the list of limits and stays at the last limit: {1 MiB, 25 MiB} makes the first
// bucket small, so that its all-reduce starts early. The rule is PyTorch's. The bits of sums depend
// on the rule, because a bucket's length determines the chunks of the ring. Li et al., "PyTorch
// Distributed", VLDB 2020, section 3.2.3.
#pragma once

#include <span>
#include <vector>

#include "runtime/base/dtype.hpp"
#include "runtime/base/units.hpp"

namespace ringsmith {

constexpr int kFirstBucketMb = 1, kBucketMb = 25;  // default caps, in MiB

struct BucketItem {
  Elements count;
  DType dtype = DType::f32;
};

struct BucketAssignment {
  std::vector<std::vector<int>> buckets;  // parameter indices, in slot order
  std::vector<Bytes> limits;              // limits[i] is the limit that applied to buckets[i]
};

// `items` is in layout order. Without indices, item i is parameter i, and the buckets are sorted by
// their smallest index. With indices (ready order, for the rebuild), item i is parameter
// indices[i], and the buckets are in the order in which they were closed; buckets still open follow
// in order of first appearance. Throws UsageError if there is no limit, or if there are indices but
// not one per item.
[[nodiscard]] BucketAssignment compute_bucket_assignment(std::span<const BucketItem> items,
                                                         std::span<const Bytes> limits,
                                                         std::span<const int> indices = {});

// ---- the plan ----
// The buckets are stored one after the other in one arena of communication memory.
//
//   arena   |b0: g5 g4 g3 ...pad|b1: g2 g1 ......pad|b2: g0 ..pad|
//            ^ start, 64-byte aligned                             ^ size <= arena_size(parameters)
//
// The slots of a bucket are adjacent, because the ring reduces one dense vector. Each bucket starts
// on its own cache line, so that two collectives in flight never share one. The first plan is made
// before the order in which gradients arrive is known. Unless unused parameters must be found, a
// second plan, in that order, replaces it. Both fit into the same arena.

struct BucketCaps {
  Bytes first = MiB(kFirstBucketMb);
  Bytes rest = MiB(kBucketMb);
};

struct BucketSlot {
  int parameter = 0;
  Elements offset;  // from the start of the bucket
  Elements count;
};

struct BucketLayout {
  DType dtype = DType::f32;
  Bytes start;  // from the start of the arena
  Elements count;
  Bytes limit;  // the cap that applied; Bytes(SIZE_MAX) for none
  std::vector<BucketSlot> slots;
  [[nodiscard]] Bytes size() const { return bytes_of(count, size_of(dtype)); }
};

struct BucketPlan {
  struct Place {
    int bucket = 0;
    int slot = 0;
  };
  std::vector<BucketLayout> buckets;
  std::vector<Place> place;  // by parameter

  [[nodiscard]] Bytes end() const;  // end of the last bucket, including padding
};

// The plan before the first backward. Normally it has one bucket per dtype, in parameter order,
// because a plan in ready order soon replaces it. With find_unused there is no rebuild: capped
// buckets are filled in parameter order, and the order of the buckets is reversed, because the last
// layers' gradients arrive first.
[[nodiscard]] BucketPlan initial_plan(std::span<const BucketItem> parameters,
                                      const BucketCaps& caps, bool find_unused);

// ready_order: the order in which gradients arrived, with every parameter once (UsageError).
[[nodiscard]] BucketPlan rebuilt_plan(std::span<const BucketItem> parameters,
                                      const BucketCaps& caps, std::span<const int> ready_order);

// Returns a size that is enough for every plan: the bytes of all parameters plus one cache line per
// parameter.
[[nodiscard]] Bytes arena_size(std::span<const BucketItem> parameters);

}  // namespace ringsmith
