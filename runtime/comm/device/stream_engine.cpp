#include "runtime/comm/device/stream_engine.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "kernels/cuda/launch.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm::cuda_ipc {

void HandOff::reach(std::uint64_t stamp) {
  record(static_cast<std::uint32_t>(stamp % kMoveEvents));
  peers_.segments().publish(peers_.segments().mine().progress, stamp);
}

void HandOff::wait_for(int rank, std::uint64_t stamp) {
  const auto& progress = peers_.segments().control(rank).progress;
  peers_.wait(rank, [&] { return progress.load() >= stamp; });
  wait_for_event(rank, static_cast<std::uint32_t>(stamp % kMoveEvents));
}

void HandOff::record(std::uint32_t event) {
  cuda_check(cudaEventRecord(device_peers_.event(peers_.rank(), event), stream_.get()));
}

void HandOff::wait_for_event(int rank, std::uint32_t event) {
  if (rank == peers_.rank()) return;  // a stream is in order anyway
  cuda_check(cudaStreamWaitEvent(stream_.get(), device_peers_.event(rank, event), 0));
}

namespace {

constexpr std::size_t kStagingBytes = std::size_t{4} << 20;  // for the input, and for the output
constexpr std::size_t kPieceBytes = std::size_t{512} << 10;  // of a message

// Returns the other ranks whose memory the moves of this mapping touch.
std::set<int> touched_by(const Mapping& mapping, int me) {
  std::set<int> ranks;
  for (const MappedMove& move : mapping.moves) {
    if (move.destinations.empty()) continue;
    for (const auto* places : {&move.sources, &move.destinations})
      for (const ChunkPlace& place : *places) ranks.insert(place.rank);
  }
  ranks.erase(me);
  return ranks;
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0 || to == from) return;
  cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, Stream::current().get()));
}

}  // namespace

StreamEngine::StreamEngine(Peers& peers, AgreementBarrier& agreement, DevicePeers& device_peers,
                           DeviceArena& arena, HandOff& hand_off)
    : peers_(peers),
      agreement_(agreement),
      device_peers_(device_peers),
      arena_(arena),
      hand_off_(hand_off),
      schedules_(peers.rank(), peers.size(), peers.segments().node_of()) {}

void StreamEngine::run(const Choice& choice, const Transfer& transfer, const Sharing& sharing,
                       const Buffers& buffers) {
  Prepared& prepared = schedules_.find(transfer.call, choice.schedule);
  const Placement placement = sharing.in_place ? Placement::in_place : Placement::apart;
  const Mapping* const mapping =
      choice.executor == Executor::stream ? schedules_.mapping(prepared, placement) : nullptr;
  if (mapping == nullptr) return run_staged(prepared, transfer);
  for (const int rank : touched_by(*mapping, peers_.rank()))
    hand_off_.wait_for_event(rank, kReadyEvent);
  run_mapped(prepared, *mapping, transfer, {buffers}, 0);
}

// Runs moves on the current stream. Counts progress from `base`, which is the same on all ranks.
struct StreamEngine::StreamPlace {
  StreamEngine& engine;
  const Schedule& schedule;
  const View& view;
  const Arithmetic arithmetic;
  const DType dtype;
  const std::uint64_t round, base;

  void at_step(int step) { engine.peers_.health().at_step(step); }
  void await(const std::vector<MappedMove::After>& after) {
    for (const auto& [rank, moves] : after)
      engine.hand_off_.wait_for(rank, HandOff::stamp(round, base + moves));
  }
  [[nodiscard]] std::byte* address(const ChunkPlace& place) const {
    const auto& buffer = place.in_input ? view.input_output.input : view.input_output.output;
    const std::size_t offset = view.slice == 0 ? place.offset : at(place.chunk) * view.slice;
    return buffer[at(place.rank)] + offset * size_of(dtype);
  }
  [[nodiscard]] std::size_t count_of(const MappedMove& move) const {
    const std::size_t all = schedule.chunks[at(move.chunk)].count;
    return view.slice == 0 ? all : std::min(view.slice, all - std::min(all, view.skipped));
  }
  void reduce(const MappedMove& move, std::span<const kernels::ReduceSource> sources,
              std::span<std::byte* const> outputs) {
    const std::size_t n = count_of(move);
    if (sources.size() == 1 && outputs.size() == 1 && !sources[0].scaled)
      copy_bytes(outputs[0], sources[0].data, n * size_of(dtype));
    else
      kernels::cuda::reduce(dtype, arithmetic.reduction, sources, outputs, Elements(n),
                            arithmetic.scale);
  }
  void publish(std::uint64_t moves) { engine.hand_off_.reach(HandOff::stamp(round, base + moves)); }
};

void StreamEngine::run_mapped(const Prepared& prepared, const Mapping& mapping,
                              const Transfer& transfer, const View& view, std::uint64_t base) {
  const Arithmetic arithmetic = transfer.arithmetic(peers_.size());
  StreamPlace place{
      *this, prepared.schedule, view, arithmetic, transfer.call.dtype, agreement_.round(), base};
  run_moves(mapping, arithmetic, place);
}

void StreamEngine::reserve_staging() {
  if (staging_input_) return;
  staging_input_ = arena_.allocate(Bytes(kStagingBytes));
  staging_output_ = arena_.allocate(Bytes(kStagingBytes));
  Catalogue& mine = device_peers_.mine();
  mine.staging_input = *arena_.locate(staging_input_->data(), staging_input_->size());
  mine.staging_output = *arena_.locate(staging_output_->data(), staging_output_->size());
}

void StreamEngine::run_staged(Prepared& prepared, const Transfer& transfer) {
  const Schedule& schedule = prepared.schedule;
  const Mapping& mapping = *schedules_.mapping(prepared, Placement::staged);
  const std::size_t width = size_of(transfer.call.dtype);
  const int me = peers_.rank(), chunks = static_cast<int>(schedule.chunks.size());
  const std::size_t slice = kStagingBytes / at(chunks) / width / 16 * 16;
  require(slice > 0, "a schedule of " + std::to_string(chunks) + " chunks needs more than the " +
                         std::to_string(kStagingBytes >> 20) +
                         " MiB of staging memory: use buffers in communication memory, or a "
                         "schedule of fewer chunks");
  std::size_t longest = 0;
  for (const Chunk& chunk : schedule.chunks) longest = std::max(longest, chunk.count);
  reserve_staging();
  const std::set<int> touched = touched_by(mapping, me);
  Buffers staging{std::vector<std::byte*>(at(peers_.size())),
                  std::vector<std::byte*>(at(peers_.size()))};
  staging.input[at(me)] = staging_input_->data();
  staging.output[at(me)] = staging_output_->data();

  std::uint64_t base = 0;
  for (std::size_t skipped = 0; skipped < longest; skipped += slice) {
    // f(chunk, offset of its slice in the staging memory, size of the slice), both in bytes
    const auto for_each_chunk = [&](auto f) {
      for (int c = 0; c < chunks; ++c) {
        const std::size_t all = schedule.chunks[at(c)].count;
        if (skipped < all) f(c, at(c) * slice * width, std::min(slice, all - skipped) * width);
      }
    };
    for_each_chunk([&](int c, std::size_t place, std::size_t bytes) {
      if (!given(schedule, me, c)) return;
      const std::size_t from = (input_offset(schedule, me, c) + skipped) * width;
      copy_bytes(staging_input_->data() + place, transfer.input.data() + from, bytes);
    });
    const std::uint64_t begun = HandOff::stamp(agreement_.round(), base);
    hand_off_.reach(begun);
    for (const int rank : touched) {
      hand_off_.wait_for(rank, begun);
      staging.input[at(rank)] = device_peers_.address(rank, device_peers_.of(rank).staging_input);
      staging.output[at(rank)] = device_peers_.address(rank, device_peers_.of(rank).staging_output);
    }
    run_mapped(prepared, mapping, transfer, {staging, slice, skipped}, base);
    for_each_chunk([&](int c, std::size_t place, std::size_t bytes) {
      if (!promised(schedule, me, c)) return;
      const std::size_t to = (output_offset(schedule, me, c) + skipped) * width;
      copy_bytes(transfer.output.data() + to, staging_output_->data() + place, bytes);
    });
    base += prepared.most_moves + 1;
  }
}

Messages::Messages(Peers& peers, Channels& channels, DevicePeers& device_peers, DeviceArena& arena,
                   HandOff& hand_off)
    : peers_(peers),
      channels_(channels),
      device_peers_(device_peers),
      arena_(arena),
      hand_off_(hand_off),
      slots_(static_cast<std::size_t>(peers.size())) {}

void Messages::run(const Transfer& transfer) {
  if (transfer.call.collective == Collective::send)
    send(transfer);
  else
    receive(transfer);
}

void Messages::send(const Transfer& transfer) {
  const int peer = transfer.call.root;
  Outbox& out = channels_.out(peer, kSendLane);
  PeerSlots& slots = slots_[static_cast<std::size_t>(peer)];
  if (!slots.memory) slots.memory = arena_.allocate(Bytes(kSlots * kPieceBytes));
  send_header(peers_, out, peer);
  const std::size_t size = transfer.input.size().value;
  for (std::size_t at = 0; at < size; at += kPieceBytes) {
    peers_.health().at_step(static_cast<std::int64_t>(at / kPieceBytes));
    // Room in the host's lane implies that the receiver has enqueued its copy out of the slot,
    // because every piece has a message in the lane.
    peers_.wait(peer, [&] { return out.has_room(); });
    if (slots.sent >= kSlots) hand_off_.wait_for_event(peer, kCreditEvent);
    std::byte* const slot = slots.memory->data() + slots.sent++ % kSlots * kPieceBytes;
    copy_bytes(slot, transfer.input.data() + at, std::min(kPieceBytes, size - at));
    hand_off_.record(kMessageEvent);
    const Location location = *arena_.locate(slot, Bytes(kPieceBytes));
    std::memcpy(out.slot(), &location, sizeof location);
    out.post(sizeof location);
  }
}

void Messages::receive(const Transfer& transfer) {
  const int peer = transfer.call.root;
  Inbox& in = channels_.in(peer, kSendLane);
  receive_header(peers_, in, transfer);
  const std::size_t size = transfer.output.size().value;
  for (std::size_t at = 0; at < size; at += kPieceBytes) {
    peers_.health().at_step(static_cast<std::int64_t>(at / kPieceBytes));
    peers_.wait(peer, [&] { return in.has_message(); });
    Location location = 0;
    std::memcpy(&location, in.slot(), sizeof location);
    hand_off_.wait_for_event(peer, kMessageEvent);
    copy_bytes(transfer.output.data() + at, device_peers_.address(peer, location),
               std::min(kPieceBytes, size - at));
    hand_off_.record(kCreditEvent);
    in.release();
  }
}

}  // namespace ringsmith::comm::cuda_ipc
