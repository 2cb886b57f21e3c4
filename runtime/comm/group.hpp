// The process group of the ranks of one host: checks the arguments of each call, gives it a number,
// and runs it on the engine that fits.
#pragma once

#include "runtime/comm/bootstrap/bootstrap.hpp"
#include "runtime/comm/transport/window.hpp"

namespace ringsmith::comm {

class HostGroup : public ProcessGroup {
 public:
  HostGroup(std::shared_ptr<Bootstrap> bootstrap, GroupOptions options);

  [[nodiscard]] int rank() const override { return host_.rank(); }
  [[nodiscard]] int size() const override { return host_.size(); }
  [[nodiscard]] std::shared_ptr<CommMemory> allocate(Bytes size) override {
    return host_.arena()->allocate(size);
  }
  [[nodiscard]] const GroupOptions& options() const override { return options_; }
  void set_algorithm(Algorithm algorithm) override { options_.algorithm = algorithm; }

  WorkPtr all_reduce_async(ConstBuffer input, Buffer output, ReduceOp op) override;
  WorkPtr reduce_scatter_async(ConstBuffer input, Buffer output, ReduceOp op) override;
  WorkPtr all_gather_async(ConstBuffer input, Buffer output) override;
  WorkPtr broadcast_async(Buffer data, int root) override;
  WorkPtr reduce_async(ConstBuffer input, Buffer output, ReduceOp op, int root) override;
  WorkPtr gather_async(ConstBuffer input, Buffer output, int root) override;
  WorkPtr scatter_async(ConstBuffer input, Buffer output, int root) override;
  WorkPtr all_to_all_async(ConstBuffer input, Buffer output) override;
  WorkPtr send_async(ConstBuffer data, int peer) override;
  WorkPtr recv_async(Buffer data, int peer) override;
  WorkPtr barrier_async() override;

 private:
  WorkPtr submit(Transfer transfer);

  Host host_;
  RollCall roll_call_;
  GroupOptions options_;
  std::uint64_t sequence_ = 0;
};

}  // namespace ringsmith::comm
