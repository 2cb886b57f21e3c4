// Where each gradient lies: the buckets of bucket.hpp, laid out one after the other in one arena of
// communication memory.
//
//   arena   |b0: g5 g4 g3 ...pad|b1: g2 g1 ......pad|b2: g0 ..pad|
//            ^ start, 64-byte aligned                             ^ size <= arena_size(parameters)
//
// Slots of a bucket touch each other (the ring sees one dense vector); buckets start on cache lines
// of their own, so that two collectives in flight never share one. A model is planned twice: before
// anything is known of the order in which gradients arrive, and, after the first backward, in that
// order. Both plans fit into the same arena, so that rebuilding allocates nothing.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/parallel/bucket.hpp"

namespace ringsmith {

struct BucketCaps {
  Bytes first = kFirstBucketCap;  // of the first bucket: small, so that its all-reduce starts early
  Bytes rest = MiB(25);
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
  Bytes limit;  // the cap that was in force; Bytes(SIZE_MAX) for none
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

  [[nodiscard]] Bytes end() const;  // of the last bucket, padding included
};

// Before the first backward. One bucket for each dtype, in the order of the parameters: nothing is
// known yet of the order of the gradients, and the plan is for one iteration only. With
// find_unused, where no rebuild follows: capped buckets in the order of the parameters, the list
// then reversed, because the last layers' gradients come first.
[[nodiscard]] BucketPlan initial_plan(std::span<const BucketItem> parameters,
                                      const BucketCaps& caps, bool find_unused);

// ready_order names every parameter once (UsageError): the order in which their gradients came.
[[nodiscard]] BucketPlan rebuilt_plan(std::span<const BucketItem> parameters,
                                      const BucketCaps& caps, std::span<const int> ready_order);

// Enough for every plan of these parameters: their bytes and one cache line for each parameter.
[[nodiscard]] Bytes arena_size(std::span<const BucketItem> parameters);

}  // namespace ringsmith
