// The group as seen by a rank that is not in it: every call is a UsageError that names the rank.
// rank() is -1, size() that of the group.
#pragma once

#include <vector>

#include "runtime/comm/process_group.hpp"

namespace ringsmith::comm {

class Outsider : public ProcessGroup {
 public:
  // rank and members as they are numbered in the group that was divided.
  Outsider(int rank, const std::vector<int>& members, GroupOptions options);

  [[nodiscard]] int rank() const override { return -1; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] const GroupOptions& options() const override { return options_; }
  void set_algorithm(Algorithm) override { refuse("set_algorithm"); }
  std::shared_ptr<CommMemory> allocate(Bytes) override { refuse("allocate"); }
  std::shared_ptr<CommMemory> allocate_on(Device, Bytes) override { refuse("allocate_on"); }
  std::shared_ptr<ProcessGroup> new_group(const std::vector<int>&) override { refuse("new_group"); }
  std::shared_ptr<ProcessGroup> split(int) override { refuse("split"); }

  WorkPtr all_reduce_async(ConstBuffer, Buffer, ReduceOp) override { refuse("all_reduce"); }
  WorkPtr reduce_scatter_async(ConstBuffer, Buffer, ReduceOp) override { refuse("reduce_scatter"); }
  WorkPtr all_gather_async(ConstBuffer, Buffer) override { refuse("all_gather"); }
  WorkPtr broadcast_async(Buffer, int) override { refuse("broadcast"); }
  WorkPtr reduce_async(ConstBuffer, Buffer, ReduceOp, int) override { refuse("reduce"); }
  WorkPtr gather_async(ConstBuffer, Buffer, int) override { refuse("gather"); }
  WorkPtr scatter_async(ConstBuffer, Buffer, int) override { refuse("scatter"); }
  WorkPtr all_to_all_async(ConstBuffer, Buffer) override { refuse("all_to_all"); }
  WorkPtr send_async(ConstBuffer, int) override { refuse("send"); }
  WorkPtr recv_async(Buffer, int) override { refuse("recv"); }
  WorkPtr barrier_async(Site) override { refuse("barrier"); }

 private:
  [[noreturn]] void refuse(const char* call) const;

  std::string why_;
  int size_;
  GroupOptions options_;
};

}  // namespace ringsmith::comm
