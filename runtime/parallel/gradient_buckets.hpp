// The gradients in their buckets: the plan (bucket.hpp), the memory, and each parameter's .grad,
// which is a view of its slot in that memory.
//
//   plan      bucket 0: p2 p1        bucket 1: p0
//   memory    |.p2.|...p1...|pad     |......p0......|pad
//                      ^ p1's .grad: backward writes it, and the peers reduce from it
//
// There is no second copy of the gradients.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/process_group.hpp"
#include "runtime/parallel/bucket.hpp"
#include "runtime/parallel/comm_hooks.hpp"
#include "runtime/tensor/storage.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

// ---- the memory in which gradients are stored and reduced ----
//
//   gradients  group    stored in                           all-reduce
//   cpu        any      communication memory of the host    in place
//   cuda:i     cuda:i   communication memory of the device  in place, on the group's stream
//   cuda:i     cpu      ordinary memory of the device       through the host, in wait():
//
//     device  [bucket] --copy--> host [staging] <-- all-reduce --> peers
//                      <--copy--
//
// The last case works with every group on the host, but is slow: neither the copies nor the
// all-reduce overlap with backward.
class BucketMemory {
 public:
  BucketMemory(std::shared_ptr<comm::ProcessGroup> group, Device where, Bytes size);

  [[nodiscard]] const std::shared_ptr<Storage>& storage() const { return storage_; }
  [[nodiscard]] Bytes size() const { return storage_->size(); }
  // True if a started reduction progresses without a call to wait().
  [[nodiscard]] bool overlaps() const { return staging_ == nullptr; }

  // Reduces `count` elements at `start` in place; collective. Wait for the Works in the order of
  // the calls.
  comm::WorkPtr all_reduce_async(Bytes start, Elements count, DType dtype, comm::ReduceOp op);
  void all_reduce(Bytes start, Elements count, DType dtype, comm::ReduceOp op);

 private:
  friend class StagedReduction;
  [[nodiscard]] comm::Buffer at(Bytes start, Elements count, DType dtype) const;
  void through_host(const comm::Buffer& on_device, comm::ReduceOp op);

  std::shared_ptr<comm::ProcessGroup> group_;
  std::shared_ptr<Storage> storage_;
  std::shared_ptr<comm::CommMemory> staging_;  // on the host; null if not needed
};

// ---- the buckets of one model ----
class GradientBuckets {
 public:
  // The parameters must be on one device (UsageError). There is no plan before install().
  GradientBuckets(std::vector<std::string> names, std::vector<Tensor> parameters,
                  std::shared_ptr<comm::ProcessGroup> group, comm::ReduceOp op);
  ~GradientBuckets();  // new gradients are stored elsewhere from then on
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  // Replaces the plan and moves existing gradients to their new slots.
  void install(BucketPlan plan);

  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  [[nodiscard]] const std::vector<Tensor>& parameters() const { return parameters_; }
  [[nodiscard]] const std::vector<BucketItem>& items() const { return items_; }  // by parameter
  [[nodiscard]] const BucketPlan& plan() const { return plan_; }
  [[nodiscard]] std::size_t count() const { return plan_.buckets.size(); }
  [[nodiscard]] const BucketMemory& memory() const { return memory_; }
  [[nodiscard]] const std::shared_ptr<comm::ProcessGroup>& group() const { return group_; }

  // ---- gradients ----
  [[nodiscard]] const Tensor& view(int parameter) const {
    return views_[static_cast<std::size_t>(parameter)];
  }
  // Makes .grad, which must be defined, a view of the parameter's slot. Copies only if the program
  // has set a gradient itself; otherwise backward has already written to the slot.
  void adopt(int parameter);
  void begin_backward() { streams_.clear(); }
  // Adopts a gradient of this backward. On a GPU the gradient is complete once the current stream
  // has reached this point; wait_for_gradients() makes the caller's stream wait for that.
  void arrived(int parameter);
  void wait_for_gradients() const;

  // ---- buckets ----
  // Reduces a bucket in place; collective. Wait for the Works in the order of the calls.
  [[nodiscard]] comm::WorkPtr reduce_async(std::size_t bucket);
  void reduce(std::size_t bucket);
  // From now on, avg divides by this number instead of the group's size.
  void set_divisor(int ranks) { divisor_ = ranks; }
  [[nodiscard]] Tensor buffer(std::size_t bucket) const;
  [[nodiscard]] GradBucket for_hook(std::size_t bucket) const;

 private:
  [[nodiscard]] comm::ReduceOp prepare(std::size_t bucket) const;

  std::vector<std::string> names_;
  std::vector<Tensor> parameters_;
  std::shared_ptr<comm::ProcessGroup> group_;
  comm::ReduceOp op_;  // avg or sum
  int divisor_;        // of avg
  std::vector<BucketItem> items_;
  Device device_;
  BucketMemory memory_;
  BucketPlan plan_;
  std::vector<Tensor> views_;    // by parameter: its slot
  std::vector<Stream> streams_;  // the streams that produce this backward's gradients
};

}  // namespace ringsmith
