// The process group of ranks of one host with a GPU each: HostGroup, and the same calls on device
// memory. Between hosts: staged_group.hpp.
//
//     call --> checked, an event on the caller's stream --> queue --> roll call (the hosts agree)
//          --> engine a or b on the group's stream, after that event --> an event: done
//          --> wait(): the caller's stream goes on after it
//
// What a failure on the device does: runtime/comm/device/monitor.hpp.
#pragma once

#include "runtime/comm/device/engine_a.hpp"
#include "runtime/comm/device/engine_b.hpp"
#include "runtime/comm/device/monitor.hpp"
#include "runtime/comm/group_on_device.hpp"

namespace ringsmith::comm {

class DeviceGroup : public GroupOnDevice {
 public:
  // Collective over the ranks of the bootstrap. UsageError if one of them cannot reach another's
  // memory, or if engine b was asked for where it cannot work.
  DeviceGroup(const std::shared_ptr<Bootstrap>& bootstrap, const GroupOptions& options,
              cuda_ipc::Tuning tuning = {});
  ~DeviceGroup() override;

  [[nodiscard]] std::shared_ptr<CommMemory> allocate_on(Device where, Bytes size) override;
  [[nodiscard]] std::vector<std::string> describe_transport() const override {
    return decision_.lines;
  }
  // The engine that was decided for. Single calls that b does not serve run on a.
  [[nodiscard]] CudaEngine engine() const { return decision_.engine; }

 private:
  [[nodiscard]] HostWait host_wait() const override;
  void execute(Transfer& transfer, bool foreground) override;
  void execute_on_device(Transfer& transfer);

  cuda_ipc::Decision decision_;
  std::unique_ptr<cuda_ipc::DevicePeers> peers_;
  std::shared_ptr<cuda_ipc::DeviceArena> arena_;
  std::unique_ptr<cuda_ipc::HandOff> hand_off_;
  std::unique_ptr<cuda_ipc::EngineA> engine_a_;
  std::unique_ptr<cuda_ipc::Messages> messages_on_device_;
  std::unique_ptr<cuda_ipc::EngineB> engine_b_;
  std::shared_ptr<cuda_ipc::Monitor> monitor_;  // also held by what has been launched
  Buffers buffers_;
};

}  // namespace ringsmith::comm
