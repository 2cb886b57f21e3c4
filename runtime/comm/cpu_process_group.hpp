// The process group for buffers in host memory, over any transport. Numbers the calls and passes
// them to the dispatcher, one at a time. device_process_group.hpp adds GPU memory.
#pragma once

#include "runtime/comm/executor/dispatcher.hpp"
#include "runtime/comm/process_group.hpp"
#include "runtime/comm/queue.hpp"

namespace ringsmith::comm {

class CpuProcessGroup : public ProcessGroup {
 public:
  CpuProcessGroup(std::shared_ptr<Bootstrap> bootstrap, const GroupOptions& options);

  [[nodiscard]] int rank() const override;
  [[nodiscard]] int size() const override;
  [[nodiscard]] const GroupOptions& options() const override { return options_; }

  WorkPtr submit(const Transfer& transfer) override;
  void run(const Transfer& transfer) override;
  void abort(Site site) override;

  [[nodiscard]] std::shared_ptr<CommMemory> allocate(Bytes size) override {
    return peers_.segments().arena()->allocate(size);
  }
  [[nodiscard]] std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks) override;
  [[nodiscard]] std::shared_ptr<ProcessGroup> split(int colour) override;

  void set_algorithm(Algorithm algorithm) override {
    options_.algorithm = algorithm;
    by_size_.clear();
  }
  void set_algorithms(const std::vector<std::pair<Bytes, Algorithm>>& by_size) override {
    by_size_ = by_size;
  }
  [[nodiscard]] std::vector<int> node_of() const override { return peers_.segments().node_of(); }
  [[nodiscard]] int ranks_on_machine() const override {
    return peers_.segments().ranks_on_machine();
  }
  [[nodiscard]] Bytes sent_between_nodes() const override {
    return peers_.segments().sent_between_nodes();
  }
  [[nodiscard]] std::vector<std::string> describe_transport() const override {
    return peers_.segments().describe();
  }
  void keep_flight_in(const std::string& folder) override {
    peers_.health().keep_flight_in(folder);
  }

 protected:
  virtual void execute(Transfer& transfer);

  Peers peers_;
  Dispatcher dispatcher_;

 private:
  // Sets the call's algorithm from the group's options (asked_of() in select.hpp).
  void ask(Transfer& transfer) const;
  void take_turn(Transfer& transfer, bool foreground);

  GroupOptions options_;
  std::vector<std::pair<Bytes, Algorithm>> by_size_;  // empty: options_.algorithm for all
  std::uint64_t collectives_ = 0, messages_ = 0;      // number of calls run so far, for errors

 protected:
  Queue queue_;  // destroyed first, because its thread uses all members above
};

}  // namespace ringsmith::comm
