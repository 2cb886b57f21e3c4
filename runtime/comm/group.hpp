// The process group of the ranks of one host: checks the arguments of each call, gives it a number,
// and runs it on the engine that fits. For host memory; device_group.hpp adds that of GPUs.
#pragma once

#include "runtime/comm/arguments.hpp"
#include "runtime/comm/executor/engine.hpp"
#include "runtime/comm/queue.hpp"

namespace ringsmith::comm {

class HostGroup : public ProcessGroup {
 public:
  HostGroup(std::shared_ptr<Bootstrap> bootstrap, const GroupOptions& options);

  [[nodiscard]] int rank() const override { return host_.rank(); }
  [[nodiscard]] int size() const override { return host_.size(); }
  [[nodiscard]] std::shared_ptr<CommMemory> allocate(Bytes size) override {
    return host_.arena()->allocate(size);
  }
  [[nodiscard]] std::vector<int> node_of() const override { return host_.node_of(); }
  [[nodiscard]] Bytes sent_between_nodes() const override { return host_.sent_between_nodes(); }
  [[nodiscard]] std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks) override;
  [[nodiscard]] std::shared_ptr<ProcessGroup> split(int colour) override;
  [[nodiscard]] std::vector<std::string> describe_transport() const override {
    return host_.describe();
  }
  [[nodiscard]] const GroupOptions& options() const override { return options_; }
  void set_algorithm(Algorithm algorithm) override {
    options_.algorithm = algorithm;
    by_size_.clear();
  }
  void set_algorithms(const std::vector<std::pair<Bytes, Algorithm>>& by_size) override {
    by_size_ = by_size;
  }

  void all_reduce(ConstBuffer input, Buffer output, ReduceOp op) override;
  void reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op) override;
  void all_gather(ConstBuffer input, Buffer output) override;
  void broadcast(Buffer data, int root) override;
  void reduce(ConstBuffer input, Buffer output, ReduceOp op, int root) override;
  void gather(ConstBuffer input, Buffer output, int root) override;
  void scatter(ConstBuffer input, Buffer output, int root) override;
  void all_to_all(ConstBuffer input, Buffer output) override;
  void send(ConstBuffer data, int peer) override;
  void recv(Buffer data, int peer) override;
  void barrier(Site site) override;

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
  WorkPtr barrier_async(Site site) override;
  void abort(Site site) override;
  void keep_flight_in(const std::string& folder) override { host_.keep_flight_in(folder); }

 protected:
  // How a call that has been checked goes on: in order, and blocking or not.
  virtual void run(const Transfer& transfer) { queue_.run(transfer); }
  virtual WorkPtr push(const Transfer& transfer) { return queue_.push(transfer); }
  // Executes the call whose turn it is.
  virtual void execute(Transfer& transfer, bool foreground);
  [[nodiscard]] Algorithm algorithm_for(Bytes size) const;  // of an all_reduce
  void number(Transfer& transfer);                          // gives the call its sequence number

  Host host_;
  Engine engine_;
  Arguments check_;
  GroupOptions options_;
  std::vector<std::pair<Bytes, Algorithm>> by_size_;  // empty: options_.algorithm for all
  std::uint64_t collectives_ = 0, messages_ = 0;      // run so far: the numbers in error messages
  Queue queue_;                                       // last: its thread uses all of the above
};

}  // namespace ringsmith::comm
