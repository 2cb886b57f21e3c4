// The memory that gradients lie in and are reduced in.
//
//   gradients  group    lie in                              all-reduce
//   cpu        any      communication memory of the host    in place
//   cuda:i     cuda:i   communication memory of the device  in place, on the group's stream
//   cuda:i     cpu      ordinary memory of the device       through the host, when it is waited
//   for:
//
//     device  [bucket] --copy--> host [staging] <-- all-reduce --> peers
//                      <--copy--
//
// The last is slow, for every byte crosses to the host and back and nothing of it is hidden; it
// works wherever a group of the host does.
#pragma once

#include <memory>

#include "runtime/comm/process_group.hpp"
#include "runtime/tensor/storage.hpp"

namespace ringsmith {

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
