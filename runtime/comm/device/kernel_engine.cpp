#include "runtime/comm/device/kernel_engine.hpp"

#include <algorithm>
#include <chrono>

#include "kernels/cuda/launch.hpp"
#include "runtime/comm/device/calls.hpp"
#include "runtime/comm/schedule/ring.hpp"
#include "runtime/comm/types/transfer.hpp"
#include "runtime/device/driver_gate.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith::comm::cuda_ipc {

namespace {

static_assert(kMostInPackets <= kMostPacketBytes && kSmallForMore <= kMostOneShotBytes);

int direction_of(Algorithm schedule) { return schedule == Algorithm::gloo_ring ? -1 : +1; }
int ring_of(Algorithm schedule) { return direction_of(schedule) > 0 ? 0 : 1; }

std::vector<Chunk> chunks_of(Algorithm schedule, const Call& call, int world) {
  if (schedule == Algorithm::gloo_ring) return gloo_chunks(world, call.count, size_of(call.dtype));
  return split_evenly(call.work_count(world), world);
}

}  // namespace

KernelEngine::KernelEngine(Peers& peers, AgreementBarrier& agreement, DevicePeers& device_peers,
                           DeviceArena& arena, Shape shape, Tuning tuning)
    : peers_(peers),
      agreement_(agreement),
      device_peers_(device_peers),
      arena_(arena),
      shape_(tuning.shape.channels > 0 ? tuning.shape : shape),
      tuning_(tuning),
      packet_calls_(tuning.packet_calls) {
  const Bytes size(station_bytes(peers.size()));
  station_ = arena.allocate(size);
  device_peers.mine().station = *arena.locate(station_->data(), size);
  {
    const DriverCall gate;
    cuda_check(cudaHostAlloc(&report_, sizeof(KernelReport), cudaHostAllocMapped));
  }
  *report_ = {};
  Stream::current().synchronize();  // the station must be zero before a peer writes to it
}

KernelEngine::~KernelEngine() {
  if (report_ == nullptr) return;
  const DriverCall gate;
  (void)cudaFreeHost(report_);
}

// The memory is cleared on a separate stream, because the current stream may still wait for the
// caller's work. No rank stores a message before all have cleared theirs.
void KernelEngine::prepare(const Choice& choice) {
  const int ring = ring_of(choice.schedule);
  if (choice.executor != Executor::slot_ring || slots_[at(ring)] != nullptr) return;
  const Bytes size(ring_slots_bytes(shape_));
  const StreamGuard own(Stream::create(Stream::current().device()));
  slots_[at(ring)] = arena_.allocate(size);
  device_peers_.mine().slots[ring] = *arena_.locate(slots_[at(ring)]->data(), size);
  Stream::current().synchronize();
  agreement_.answer();
  agreement_.await_all();
}

void KernelEngine::run(const Choice& choice, const Transfer& transfer, const Buffers& buffers,
                       const Sharing& sharing, std::uint64_t operation) {
  const Call& call = transfer.call;
  CUstream_st* const stream = Stream::current().get();
  if (choice.executor == Executor::one_shot) {
    DirectCall direct = direct_call(transfer, buffers, operation);
    direct.chunk = {0, call.count};
    direct.packet_flag = next_packet_flag();
    direct.blocks = blocks_for(call.bytes(), kLineData);
    return launch_one_shot(direct, stream);
  }
  if (choice.executor == Executor::two_shot) {
    DirectCall direct = direct_call(transfer, buffers, operation);
    const Chunk chunk = chunks_of(choice.schedule, call, peers_.size())[at(peers_.rank())];
    direct.chunk = {chunk.offset, chunk.count};
    const std::size_t longest = call.bytes() / at(peers_.size()) + size_of(call.dtype);
    direct.blocks = blocks_for(longest, 16);
    direct.meeting = meetings_ + 1;
    meetings_ += 2;
    return launch_direct(direct, stream);
  }
  RingCall ring = ring_call(choice, transfer, operation);
  std::uint64_t longest = 0;
  for (int q = 0; q < peers_.size(); ++q) longest = std::max(longest, ring.chunks[q].count);
  const std::size_t width = size_of(call.dtype);
  if (choice.executor == Executor::packet_ring) {
    ring.packet_flag = next_packet_flag();
    ring.packet_lines = lines_of(longest * width);
    ring.blocks = blocks_for(longest * width, kLineData);
    return launch_packet_ring(ring, stream);
  }
  ring.blocks = blocks_for(longest * width, 64);
  const std::size_t blocks = at(ring.blocks);
  ring.message_bytes = message_bytes_for((longest + blocks - 1) / blocks * width, shape_);
  ring.slots = slots(peers_.rank(), ring.ring);
  ring.next_slots = slots(ring.next_rank, ring.ring);
  if (call.collective == Collective::all_reduce && sharing.all)
    ring.next_output = buffers.output[at(ring.next_rank)];
  launch_ring(ring, stream);
}

RingCall KernelEngine::ring_call(const Choice& choice, const Transfer& transfer,
                                 std::uint64_t operation) {
  const Call& call = transfer.call;
  const int world = peers_.size(), me = peers_.rank(), direction = direction_of(choice.schedule);
  RingCall ring{};
  ring.collective = call.collective;
  ring.dtype = call.dtype;
  ring.arithmetic = transfer.arithmetic(world);
  ring.world = world;
  ring.rank = me;
  ring.previous_rank = wrap(me - direction, world);
  ring.next_rank = wrap(me + direction, world);
  ring.ring = ring_of(choice.schedule);
  ring.shape = shape_;
  ring.input = transfer.input.data();
  ring.output = transfer.output.data();
  ring.mine = station(me);
  ring.previous = station(ring.previous_rank);
  ring.next = station(ring.next_rank);
  ring.timeout = timeout_of(operation);
  if (ring.collective == Collective::broadcast) {
    ring.position = wrap(me - call.root, world);
    ring.chunks[0] = {0, call.count};
    return ring;
  }
  ring.position = wrap(direction * me, world);
  const std::vector<Chunk> chunks = chunks_of(choice.schedule, call, world);
  for (int c = 0; c < world; ++c)
    ring.chunks[wrap(direction * c, world)] = {chunks[at(c)].offset, chunks[at(c)].count};
  if (ring.collective == Collective::reduce_scatter) ring.output_begin = chunks[at(me)].offset;
  if (ring.collective == Collective::all_gather) ring.input_begin = chunks[at(me)].offset;
  return ring;
}

DirectCall KernelEngine::direct_call(const Transfer& transfer, const Buffers& buffers,
                                     std::uint64_t operation) {
  DirectCall direct{};
  direct.dtype = transfer.call.dtype;
  direct.arithmetic = transfer.arithmetic(peers_.size());
  direct.world = peers_.size();
  direct.rank = peers_.rank();
  direct.shape = shape_;
  direct.timeout = timeout_of(operation);
  for (int r = 0; r < peers_.size(); ++r) {
    direct.input[r] = buffers.input[at(r)];
    direct.output[r] = buffers.output[at(r)];
    direct.station[r] = station(r);
  }
  direct.input[direct.rank] = transfer.input.data();
  direct.output[direct.rank] = transfer.output.data();
  return direct;
}

std::byte* KernelEngine::station(int rank) {
  return device_peers_.address(rank, device_peers_.of(rank).station);
}
std::byte* KernelEngine::slots(int rank, int ring) {
  return device_peers_.address(rank, device_peers_.of(rank).slots[ring]);
}

// The limit is longer than the monitor's deadline: the monitor reports more than a kernel can, so
// the kernel's clock is only the fallback if the monitor is blocked.
KernelTimeout KernelEngine::timeout_of(std::uint64_t operation) const {
  constexpr std::chrono::seconds kFirstTheMonitor{2};
  KernelTimeout timeout{.report = report_, .operation = operation};
  timeout.nanoseconds = static_cast<std::uint64_t>(
      std::chrono::nanoseconds(peers_.health().timeout() + kFirstTheMonitor).count());
  return timeout;
}

// Returns the number of blocks that have work.
int KernelEngine::blocks_for(std::size_t bytes, std::size_t bytes_per_thread) const {
  const std::size_t block = bytes_per_thread * at(shape_.threads);
  return static_cast<int>(
      std::clamp<std::size_t>((bytes + block - 1) / block, 1, at(shape_.channels)));
}

// Numbers the calls that use packets, starting at 1. When the numbers wrap around, every rank
// zeroes its packets, so that a line of an earlier call with the same number does not look new. No
// rank sends a packet before all have zeroed theirs.
std::uint32_t KernelEngine::next_packet_flag() {
  if (++packet_calls_ != 0) return packet_calls_;
  packet_calls_ = 1;
  const Stream stream = Stream::current();
  cuda_check(cudaMemsetAsync(station_->data() + packets_at(0, peers_.size()), 0,
                             2 * packet_half_bytes(peers_.size()), stream.get()));
  stream.synchronize();
  agreement_.answer();
  agreement_.await_all();
  return packet_calls_;
}

}  // namespace ringsmith::comm::cuda_ipc
