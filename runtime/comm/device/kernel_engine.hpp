// The kernel engine: one kernel per collective. The kernel itself waits for its peers' kernels,
// without the host, so a hop costs only a store into the neighbour's memory and a poll.
//
// schedule/select.hpp chooses a kernel or the stream engine for each call. Both sum in the order of
// the schedule:
//
// | executor               | kernel in | order of the sum        |
// |------------------------|-----------|-------------------------|
// | one_shot               | direct.cu | ((x0 + x1) + x2) + ...  |
// | two_shot               | direct.cu | from the chunk's owner  |
// | packet_ring, slot_ring | ring.cu   | the ring's              |
//
// All kernels of a collective must run simultaneously: on distinct devices, or on one device with
// room for all of them. Kernels of different processes on one device do not run simultaneously, so
// whereabouts.hpp refuses the kernel engine for them.
#pragma once

#include <array>

#include "runtime/comm/device/calls.hpp"
#include "runtime/comm/device/device_memory.hpp"
#include "runtime/comm/executor/executors.hpp"

namespace ringsmith::comm::cuda_ipc {

class KernelEngine {
 public:
  // Publishes this rank's station in its catalogue.
  KernelEngine(Peers& peers, AgreementBarrier& agreement, DevicePeers& device_peers,
               DeviceArena& arena, Shape shape, Tuning tuning);
  KernelEngine(const KernelEngine&) = delete;
  KernelEngine& operator=(const KernelEngine&) = delete;
  ~KernelEngine();

  // Returns the record that the monitor watches, in pinned host memory.
  [[nodiscard]] KernelReport* report() const { return report_; }
  // Makes the destructor leave the record allocated, because kernels may still write it.
  void abandon() { report_ = nullptr; }

  // Collective. Must be called before run(), and before the thread holds a JointLaunch. Allocates
  // the slots of the choice's ring at the first call that uses them; layout.hpp has their size.
  // Throws CudaError if the device is out of memory.
  void prepare(const Choice& choice);
  // Must be called after the agreement barrier, with a choice whose executor is_kernel(). Launches
  // on the calling thread's current stream. `operation` is the call's number in the group.
  void run(const Choice& choice, const Transfer& transfer, const Buffers& buffers,
           const Sharing& sharing, std::uint64_t operation);

 private:
  [[nodiscard]] RingCall ring_call(const Choice& choice, const Transfer& transfer,
                                   std::uint64_t operation);
  [[nodiscard]] DirectCall direct_call(const Transfer& transfer, const Buffers& buffers,
                                       std::uint64_t operation);
  [[nodiscard]] std::byte* station(int rank);
  [[nodiscard]] std::byte* slots(int rank, int ring);
  [[nodiscard]] KernelTimeout timeout_of(std::uint64_t operation) const;
  [[nodiscard]] int blocks_for(std::size_t bytes, std::size_t bytes_per_thread) const;
  std::uint32_t next_packet_flag();

  Peers& peers_;
  AgreementBarrier& agreement_;
  DevicePeers& device_peers_;
  DeviceArena& arena_;
  Shape shape_;
  Tuning tuning_;
  std::shared_ptr<CommMemory> station_;
  std::array<std::shared_ptr<CommMemory>, kRings> slots_;  // null until the first call through them
  KernelReport* report_ = nullptr;
  std::uint32_t packet_calls_;
  std::uint64_t meetings_ = 0;
};

}  // namespace ringsmith::comm::cuda_ipc
