// The process group of ranks with a GPU each: CpuProcessGroup, and the same calls on device memory.
// Such a call starts after what the caller's stream holds, and the caller's stream continues after
// it:
//
//     caller's stream   [before] --ready-.                      .-done--> [after]
//     group's stream                     '--> [the collective] -'
//
// How the bytes travel is the backend's business: device/backend.hpp.
#pragma once

#include "runtime/comm/cpu_process_group.hpp"
#include "runtime/comm/device/backend.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith::comm {

// No virtual function has its body here: g++ 16 calls such a body in CPU code that holds a
// ProcessGroup, which then wants this class in a program that is linked without devices.
class DeviceProcessGroup : public CpuProcessGroup {
 public:
  // Collective over the ranks of the bootstrap. UsageError unless options.device is a GPU of this
  // process, and as the backends say.
  DeviceProcessGroup(const std::shared_ptr<Bootstrap>& bootstrap, const GroupOptions& options,
                     const cuda_ipc::Tuning& tuning = {});
  // What is queued still runs.
  ~DeviceProcessGroup() override;

  WorkPtr submit(const Transfer& transfer) override;
  void run(const Transfer& transfer) override;
  [[nodiscard]] std::shared_ptr<CommMemory> allocate_on(Device where, Bytes size) override;
  [[nodiscard]] std::vector<std::string> describe_transport() const override;
  // The engine that was decided for. Single calls that b does not serve run on a.
  [[nodiscard]] CudaEngine engine() const { return backend_->engine(); }
  // The group's own, of high priority.
  [[nodiscard]] const Stream& stream() const { return stream_; }

 private:
  class DeviceWork;
  void execute(Transfer& transfer) override;
  [[nodiscard]] Transfer prepared(const Transfer& transfer) const;

  Device device_;
  Stream stream_;
  std::unique_ptr<DeviceBackend> backend_;
};

// A DeviceProcessGroup. A program that is linked without devices (kernels/absent) has another one.
[[nodiscard]] std::shared_ptr<ProcessGroup> make_device_group(
    const std::shared_ptr<Bootstrap>& bootstrap, const GroupOptions& options);

}  // namespace ringsmith::comm
