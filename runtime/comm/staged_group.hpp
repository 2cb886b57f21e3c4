// The process group of ranks with a GPU each that are on several hosts: what is on the device takes
// the way through pinned memory of the host.
//
//     device   [input] --copy--.                               .--copy--> [output]
//     host                 [pinned] == HostGroup's collective ==> [pinned]
//     wires                            shared memory, TCP, RDMA
//
// The network device could take the bytes from the GPU itself (dma-buf, nvidia_peermem). That is
// not done in this version; describe_transport() says so.
#pragma once

#include "runtime/comm/group_on_device.hpp"

namespace ringsmith::comm {

class StagedGroup : public GroupOnDevice {
 public:
  // Collective over the ranks of the bootstrap. UsageError if engine a or b is asked for: those
  // reach the memory of devices of one host.
  StagedGroup(std::shared_ptr<Bootstrap> bootstrap, const GroupOptions& options);
  // What is queued still runs.
  ~StagedGroup() override { queue_.stop(); }

  // On the device: plain memory, since no peer reaches it.
  [[nodiscard]] std::shared_ptr<CommMemory> allocate_on(Device where, Bytes size) override;
  [[nodiscard]] std::vector<std::string> describe_transport() const override;

 private:
  [[nodiscard]] HostWait host_wait() const override;
  void execute(Transfer& transfer, bool foreground) override;
};

}  // namespace ringsmith::comm
