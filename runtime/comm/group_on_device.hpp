// What the two groups of ranks with a GPU have in common: a call on device memory starts after what
// the caller's stream holds, and the caller's stream goes on after it.
//
//     caller's stream   [before] --ready-.                      .-done--> [after]
//     group's stream                     '--> [the collective] -'
//
// device_group.hpp: GPUs of one host, which reach each other's memory. staged_group.hpp: several
// hosts.
#pragma once

#include <functional>

#include "runtime/comm/device/monitor.hpp"
#include "runtime/comm/group.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith::comm {

class GroupOnDevice : public HostGroup {
 protected:
  // How the host waits until the device has finished an operation. A Work keeps it, and may outlive
  // the group.
  using HostWait = std::function<void(const cuda_ipc::Operation&)>;

  // UsageError unless options.device is a GPU of this process.
  GroupOnDevice(std::shared_ptr<Bootstrap> bootstrap, const GroupOptions& options);
  [[nodiscard]] virtual HostWait host_wait() const = 0;

  Device device_;
  Stream stream_;

 private:
  class DeviceWork;
  void run(const Transfer& transfer) override;
  WorkPtr push(const Transfer& transfer) override;
};

}  // namespace ringsmith::comm
