// Runs calls on device memory for a DeviceProcessGroup, in one of three ways:
//
//   peers    GPUs of one host reach each other's memory: an engine on the group's stream
//   nodes    the same within each of several nodes; all_reduce sends only sums of nodes between
//            them, in pieces; other calls as staged
//   staged   GPUs that cannot reach each other's memory, or nodes with different numbers of GPUs:
//            through pinned host memory
//
//     device   [input] --copy--.                               .--copy--> [output]
//     host                 [pinned] == the collective on the host ==> [pinned]
//     network                          shared memory, TCP, RDMA
#pragma once

#include <functional>

#include "runtime/comm/device/kernel_engine.hpp"
#include "runtime/comm/device/monitor.hpp"
#include "runtime/comm/executor/dispatcher.hpp"

namespace ringsmith::comm {

class DeviceBackend {
 public:
  // Blocks the host until an operation is done on the device. A Work stores this function and may
  // outlive the group.
  using HostWait = std::function<void(const cuda_ipc::DeviceOperation&)>;

  // The objects that a backend uses; they must outlive it. The dispatcher runs calls on host
  // memory, and every collective starts with its agreement barrier.
  struct Group {
    Peers& peers;
    Dispatcher& dispatcher;
    Device device;
    Stream& stream;
  };

  virtual ~DeviceBackend() = default;
  // Runs a call on device memory, after transfer.operation->ready(). Calls launched() on the
  // operation before it returns, unless it throws.
  virtual void run(Transfer& transfer) = 0;
  // Returns zero-filled memory of the device. With the peer backend, peers can access it.
  [[nodiscard]] virtual std::shared_ptr<CommMemory> allocate(Bytes size) = 0;
  [[nodiscard]] virtual HostWait host_wait() const = 0;
  // Called when the group has failed or is aborted; any thread may call abort().
  virtual void abort(Site /*site*/) {}
  virtual void give_up() noexcept {}  // ends all waits on the device
  [[nodiscard]] virtual CudaEngine engine() const { return CudaEngine::automatic; }
  [[nodiscard]] virtual std::vector<std::string> describe() const = 0;
};

// Collective over the ranks of the bootstrap. Returns null on all ranks, with the reason in
// `refused`, if a rank cannot access another rank's memory or the access fails its test (ping.hpp).
// Throws UsageError if `wish` names an engine that cannot work.
[[nodiscard]] std::unique_ptr<DeviceBackend> make_peer_backend(Bootstrap& bootstrap,
                                                               const DeviceBackend::Group& group,
                                                               CudaEngine wish,
                                                               const cuda_ipc::Tuning& tuning,
                                                               std::string& refused);

// Collective over the ranks of the bootstrap, which are on several nodes. node: a bootstrap of the
// ranks of this rank's node, in their order. Returns null on all ranks, with the reason in
// `refused`, if every node has one rank, if the nodes' sizes have no common multiple that is small
// enough, or if make_peer_backend() refuses on some node. Throws UsageError on all ranks if
// `options.engine` names an engine that cannot work.
[[nodiscard]] std::unique_ptr<DeviceBackend> make_nodes_backend(
    Bootstrap& bootstrap, const std::shared_ptr<Bootstrap>& node, const DeviceBackend::Group& group,
    const GroupOptions& options, const cuda_ipc::Tuning& tuning, std::string& refused);

// refused: why make_peer_backend() returned null; empty if it was not tried. Throws UsageError if
// `wish` names an engine, because both need peer access.
//
// Network adapters that read GPU memory themselves (dma-buf, nvidia_peermem) are not supported.
[[nodiscard]] std::unique_ptr<DeviceBackend> make_staged_backend(const DeviceBackend::Group& group,
                                                                 CudaEngine wish,
                                                                 const std::string& refused);

}  // namespace ringsmith::comm
