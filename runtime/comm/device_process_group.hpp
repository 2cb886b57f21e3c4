// A process group that also accepts device memory. Each rank uses one GPU. A call on device memory
// is ordered with the caller's stream:
//
//     caller's stream   [before] --ready-.                      .-done--> [after]
//     group's stream                     '--> [the collective] -'
#pragma once

#include "runtime/comm/cpu_process_group.hpp"
#include "runtime/comm/device/backend.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith::comm {

// The class defines no virtual function inline: g++ 16 would call an inline body directly in CPU
// code that holds a ProcessGroup, so programs linked without devices would need this class.
class DeviceProcessGroup : public CpuProcessGroup {
 public:
  // Collective over the ranks of the bootstrap. Throws UsageError if options.device is not a GPU of
  // this process, or if options.engine cannot work.
  DeviceProcessGroup(const std::shared_ptr<Bootstrap>& bootstrap, const GroupOptions& options,
                     const cuda_ipc::Tuning& tuning = {});
  // The destructor first runs all queued calls.
  ~DeviceProcessGroup() override;

  WorkPtr submit(const Transfer& transfer) override;
  void run(const Transfer& transfer) override;
  void abort(Site site) override;
  [[nodiscard]] std::shared_ptr<CommMemory> allocate_on(Device where, Bytes size) override;
  [[nodiscard]] std::vector<std::string> describe_transport() const override;
  // Returns the engine in use; automatic if data passes through host memory. Calls that the kernel
  // engine does not support run on the stream engine.
  [[nodiscard]] CudaEngine engine() const { return backend_->engine(); }
  [[nodiscard]] const Stream& stream() const { return stream_; }

 private:
  class DeviceWork;
  void execute(Transfer& transfer) override;
  [[nodiscard]] Transfer prepared(const Transfer& transfer) const;

  Device device_;
  Stream stream_;
  std::unique_ptr<DeviceBackend> backend_;
};

// Makes a DeviceProcessGroup. Programs linked without devices have another definition
// (kernels/absent).
[[nodiscard]] std::shared_ptr<ProcessGroup> make_device_group(
    const std::shared_ptr<Bootstrap>& bootstrap, const GroupOptions& options);

}  // namespace ringsmith::comm
