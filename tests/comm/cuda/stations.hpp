// The kernel engine without a group, with all ranks in one process, each on its own device.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/cuda/launch.hpp"
#include "runtime/comm/device/calls.hpp"
#include "runtime/comm/schedule/ring.hpp"
#include "runtime/device/stream.hpp"
#include "tests/comm/cuda/connected.hpp"

namespace ringsmith::test {

class DeviceBlock {
 public:
  DeviceBlock(Device device, std::size_t bytes) : device_(device) {
    const DeviceGuard guard(device);
    cuda_check(cudaMalloc(&data_, bytes == 0 ? 1 : bytes));
    const Stream stream = Stream::compute(device);
    cuda_check(cudaMemsetAsync(data_, 0, bytes, stream.get()));
    stream.synchronize();
  }
  DeviceBlock(DeviceBlock&& other) noexcept
      : device_(other.device_), data_(std::exchange(other.data_, nullptr)) {}
  DeviceBlock& operator=(DeviceBlock&&) = delete;
  ~DeviceBlock() {
    if (data_ != nullptr) (void)cudaFree(data_);
  }
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  Device device_;
  std::byte* data_ = nullptr;
};

inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes, Device device) {
  const DeviceGuard guard(device);
  const Stream stream = Stream::compute(device);
  cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.get()));
  stream.synchronize();
}

class Stations {
 public:
  using Shape = comm::cuda_ipc::Shape;
  using RingCall = comm::cuda_ipc::RingCall;
  using DirectCall = comm::cuda_ipc::DirectCall;

  Stations(int world, Shape shape) : world_(world), shape_(shape) {
    for (int r = 0; r < world; ++r) {
      const DeviceGuard guard(device(r));
      for (int peer = 0; peer < world; ++peer)
        if (peer != r && cudaDeviceEnablePeerAccess(peer, 0) != cudaSuccess)
          (void)cudaGetLastError();  // an earlier test has enabled the access
      memory_.emplace_back(device(r), comm::cuda_ipc::station_bytes(world));
      for (auto& slots : slots_)
        slots.emplace_back(device(r), comm::cuda_ipc::ring_slots_bytes(shape));
      streams_.push_back(Stream::create(device(r)));
      comm::cuda_ipc::KernelReport* report = nullptr;
      cuda_check(cudaHostAlloc(&report, sizeof *report, cudaHostAllocMapped));
      *report = {};
      reports_.push_back(report);
    }
  }
  Stations(const Stations&) = delete;
  Stations& operator=(const Stations&) = delete;
  ~Stations() {
    synchronize();
    for (auto* report : reports_) (void)cudaFreeHost(report);
  }

  [[nodiscard]] static Device device(int rank) { return Device::cuda(rank % connected_devices()); }
  [[nodiscard]] int world() const { return world_; }
  [[nodiscard]] const Stream& stream(int rank) const { return streams_[at(rank)]; }
  [[nodiscard]] comm::cuda_ipc::KernelReport& report(int rank) const { return *reports_[at(rank)]; }
  void stop(int rank) {
    comm::cuda_ipc::SystemAtomic<std::uint32_t>(reports_[at(rank)]->stop)
        .store(1, cuda::memory_order_relaxed);
  }
  void synchronize() const {
    for (const Stream& stream : streams_) stream.synchronize();
  }
  // Throws if a kernel has given up waiting. One thread launches all ranks' kernels, so a tool that
  // makes launches wait for their kernels keeps rank 1 from being launched while rank 0 waits for
  // it.
  void require_all_waiting() const {
    for (comm::cuda_ipc::KernelReport* report : reports_)
      if (has_written(*report))
        throw Error("rank " + std::to_string(report->rank) + "'s kernel waited too long for rank " +
                    std::to_string(report->peer) +
                    "'s; do launches wait for their kernels here (CUDA_LAUNCH_BLOCKING=1, or a "
                    "tool such as compute-sanitizer)?");
  }
  void finish() const {
    synchronize();
    require_all_waiting();
  }

  // Returns the ring call of `rank` in a direction (+1 or -1), with the schedule's chunks.
  [[nodiscard]] RingCall ring(comm::Collective collective, int rank, int direction,
                              const std::vector<comm::Chunk>& chunks, DType dtype) {
    RingCall call{};
    call.collective = collective;
    call.dtype = dtype;
    call.world = world_;
    call.rank = rank;
    call.position = direction > 0 ? rank : comm::wrap(-rank, world_);
    call.previous_rank = comm::wrap(rank - direction, world_);
    call.next_rank = comm::wrap(rank + direction, world_);
    call.ring = direction > 0 ? 0 : 1;
    call.shape = shape_;
    call.blocks = shape_.channels;
    call.mine = memory_[at(rank)].data();
    call.previous = memory_[at(call.previous_rank)].data();
    call.next = memory_[at(call.next_rank)].data();
    call.slots = slots_[call.ring][at(rank)].data();
    call.next_slots = slots_[call.ring][at(call.next_rank)].data();
    call.message_bytes = shape_.slot_bytes;
    call.packet_flag = packet_flag;
    call.timeout = {reports_[at(rank)], limit, 0, nanoseconds};
    std::uint64_t longest = 0;
    for (int c = 0; c < static_cast<int>(chunks.size()); ++c) {
      const comm::Chunk& chunk = chunks[at(c)];
      call.chunks[direction > 0 ? c : comm::wrap(-c, world_)] = {chunk.offset, chunk.count};
      longest = std::max<std::uint64_t>(longest, chunk.count);
    }
    call.packet_lines = comm::cuda_ipc::lines_of(longest * size_of(dtype));
    return call;
  }

  [[nodiscard]] DirectCall direct(int rank, comm::cuda_ipc::Range chunk, DType dtype) {
    DirectCall call{};
    call.dtype = dtype;
    call.world = world_;
    call.rank = rank;
    call.shape = shape_;
    call.blocks = shape_.channels;
    call.meeting = meeting;
    call.packet_flag = packet_flag;
    call.chunk = chunk;
    call.timeout = {reports_[at(rank)], limit, 0, nanoseconds};
    for (int r = 0; r < world_; ++r) call.station[r] = memory_[at(r)].data();
    return call;
  }

  std::uint32_t packet_flag = 1;
  std::uint64_t meeting = 1;
  std::uint64_t limit = ~std::uint64_t{0};  // maximum number of polls
  // Far longer than any test. Without a limit, a kernel whose peer is never launched would block
  // the device, and the test, forever.
  std::uint64_t nanoseconds = 20'000'000'000;

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  int world_;
  Shape shape_;
  std::vector<DeviceBlock> memory_;
  std::vector<DeviceBlock> slots_[comm::cuda_ipc::kRings];
  std::vector<Stream> streams_;
  std::vector<comm::cuda_ipc::KernelReport*> reports_;
};

}  // namespace ringsmith::test
