// How calls on device memory are run for a DeviceProcessGroup. Two ways:
//
//   peers    GPUs of one host reach each other's memory: engine a or b on the group's stream
//   staged   GPUs of several hosts, or that do not reach each other: the way through pinned memory
//            of the host
//
//     device   [input] --copy--.                               .--copy--> [output]
//     host                 [pinned] == the collective on the host ==> [pinned]
//     network                          shared memory, TCP, RDMA
#pragma once

#include <functional>

#include "runtime/comm/device/kernel_engine.hpp"
#include "runtime/comm/device/monitor.hpp"
#include "runtime/comm/executor/engine.hpp"

namespace ringsmith::comm {

class DeviceBackend {
 public:
  // How the host waits until the device has finished an operation. A Work keeps it, and may outlive
  // the group.
  using HostWait = std::function<void(const cuda_ipc::Operation&)>;

  // What a backend works with. All of it outlives the backend.
  struct Group {
    Peers& peers;
    Engine& engine;  // of the same group, for host memory: its agreement barrier opens every call
    Device device;
    Stream& stream;
  };

  virtual ~DeviceBackend() = default;
  // A call whose turn it is, on device memory: starts after transfer.operation->ready(), and leaves
  // the operation launched().
  virtual void run(Transfer& transfer) = 0;
  // Zero-filled memory of the device, which peers reach where they can.
  [[nodiscard]] virtual std::shared_ptr<CommMemory> allocate(Bytes size) = 0;
  [[nodiscard]] virtual HostWait host_wait() const = 0;
  [[nodiscard]] virtual CudaEngine engine() const { return CudaEngine::automatic; }
  [[nodiscard]] virtual std::vector<std::string> describe() const = 0;
};

// Collective over the ranks of the bootstrap. Null, on all of them, if one cannot reach another's
// memory, or what it writes there does not arrive: `refused` says which. UsageError if an engine
// was asked for that cannot work.
[[nodiscard]] std::unique_ptr<DeviceBackend> make_peer_backend(Bootstrap& bootstrap,
                                                               const DeviceBackend::Group& group,
                                                               CudaEngine wish,
                                                               const cuda_ipc::Tuning& tuning,
                                                               std::string& refused);

// UsageError if engine a or b is asked for: those reach the memory of devices of one host.
//
// The network device could take the bytes from the GPU itself (dma-buf, nvidia_peermem). That is
// not done in this version; describe() says so.
// refused: why peers is not what serves, for people; empty: it was not tried.
[[nodiscard]] std::unique_ptr<DeviceBackend> make_staged_backend(const DeviceBackend::Group& group,
                                                                 CudaEngine wish,
                                                                 const std::string& refused);

}  // namespace ringsmith::comm
