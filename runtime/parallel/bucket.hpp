// Buckets: which gradients travel together, where each lies, and in which memory.
//
// One all-reduce per parameter pays the latency of a collective for every bias; one all-reduce for
// the whole model cannot start before backward has ended. Buckets are the middle: parameters are
// appended to an open bucket until it has reached its limit, and the next one is opened.
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

#include <memory>
#include <span>
#include <vector>

#include "runtime/base/dtype.hpp"
#include "runtime/base/units.hpp"
#include "runtime/comm/process_group.hpp"
#include "runtime/tensor/storage.hpp"

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

// ---- the plan ----
// Where each gradient lies: the buckets, laid out one after the other in one arena of communication
// memory.
//
//   arena   |b0: g5 g4 g3 ...pad|b1: g2 g1 ......pad|b2: g0 ..pad|
//            ^ start, 64-byte aligned                             ^ size <= arena_size(parameters)
//
// Slots of a bucket touch each other (the ring sees one dense vector); buckets start on cache lines
// of their own, so that two collectives in flight never share one. A model is planned twice: before
// anything is known of the order in which gradients arrive, and, after the first backward, in that
// order. Both plans fit into the same arena, so that rebuilding allocates nothing.

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

// ---- the memory that gradients lie in and are reduced in ----
//
//   gradients  group    lie in                              all-reduce
//   cpu        any      communication memory of the host    in place
//   cuda:i     cuda:i   communication memory of the device  in place, on the group's stream
//   cuda:i     cpu      ordinary memory of the device       through the host, when waited for:
//
//     device  [bucket] --copy--> host [staging] <-- all-reduce --> peers
//                      <--copy--
//
// The last is slow, since every byte crosses to the host and back and nothing of it is hidden; it
// works wherever a group of the host does.
class BucketMemory {
 public:
  BucketMemory(std::shared_ptr<comm::ProcessGroup> group, Device where, Bytes size);

  [[nodiscard]] const std::shared_ptr<Storage>& storage() const { return storage_; }
  [[nodiscard]] Bytes size() const { return storage_->size(); }
  // Whether a reduction that has been started runs by itself.
  [[nodiscard]] bool overlaps() const { return staging_ == nullptr; }

  // count elements at `start`, in place; collective. The asynchronous form may not be waited for in
  // another order than it was called in.
  comm::WorkPtr all_reduce_async(Bytes start, Elements count, DType dtype, comm::ReduceOp op);
  void all_reduce(Bytes start, Elements count, DType dtype, comm::ReduceOp op);

 private:
  friend class StagedReduction;
  [[nodiscard]] comm::Buffer at(Bytes start, Elements count, DType dtype) const;
  void through_host(const comm::Buffer& on_device, comm::ReduceOp op);

  std::shared_ptr<comm::ProcessGroup> group_;
  std::shared_ptr<Storage> storage_;
  std::shared_ptr<comm::CommMemory> staging_;  // of the host; null where it is not needed
};

}  // namespace ringsmith
