#include <algorithm>
#include <array>

#include "runtime/comm/executor/executors.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

namespace {

constexpr int kSlicesInFlight = 2;
constexpr std::size_t kSlicesOfChunk = 4;
static_assert(kSlicesInFlight <= kSendLane);

class SlotRun {
 public:
  SlotRun(Peers& peers, Channels& channels, const Schedule& schedule, const Plan& plan,
          const Transfer& transfer)
      : peers_(peers),
        channels_(channels),
        schedule_(schedule),
        plan_(plan),
        transfer_(transfer),
        arithmetic_(transfer.arithmetic(peers.size())),
        width_(size_of(transfer.call.dtype)) {
    std::size_t longest = 0;
    for (const Chunk& chunk : schedule.chunks) longest = std::max(longest, chunk.count);
    // Cuts long chunks into several slices, so that one moves while another is reduced.
    slice_ = std::clamp(longest * width_ / kSlicesOfChunk, kSlotBytes,
                        peers.segments().message_bytes()) /
             width_;
    slices_ = (longest + slice_ - 1) / slice_;
  }

  void run() {
    for (int lane = 0; lane < kSlicesInFlight; ++lane) start_next(lane);
    while (oldest().slice < slices_) {
      bool moved = false;
      for (int i = 0; i < kSlicesInFlight; ++i) {
        InFlight& lane = lanes_[(oldest_ + static_cast<std::size_t>(i)) % kSlicesInFlight];
        while (lane.slice < slices_ && ready(lane)) {
          execute(lane);
          moved = true;
          if (++lane.next == plan_.size()) break;
        }
      }
      while (oldest().slice < slices_ && oldest().next == plan_.size()) {
        start_next(static_cast<int>(oldest_));
        oldest_ = (oldest_ + 1) % kSlicesInFlight;
      }
      if (!moved) wait();
    }
  }

 private:
  struct InFlight {
    int index = 0;
    std::size_t slice = 0;
    std::size_t next = 0;  // index of a move in the plan
  };

  InFlight& oldest() { return lanes_[oldest_]; }

  void start_next(int lane) {
    lanes_[static_cast<std::size_t>(lane)] = {lane, next_slice_++, 0};
    if (plan_.empty()) lanes_[static_cast<std::size_t>(lane)].slice = slices_;
  }

  // Returns the number of the chunk's elements in this slice; 0 beyond the chunk's end. Empty
  // messages are not sent.
  [[nodiscard]] std::size_t count(const InFlight& lane, int chunk) const {
    const std::size_t all = schedule_.chunks[static_cast<std::size_t>(chunk)].count;
    const std::size_t begin = lane.slice * slice_;
    return begin < all ? std::min(slice_, all - begin) : 0;
  }

  // True if the next move of this slice can run. If not, blocker_ is the peer that it waits for.
  bool ready(const InFlight& lane) {
    if (lane.next == plan_.size()) return false;
    const Move& move = plan_[lane.next];
    if (count(lane, move.chunk) == 0) return true;
    for (const Source& source : move.sources)
      if (source.kind == Source::Kind::message &&
          !channels_.in(source.peer, lane.index).has_message()) {
        blocker_ = source.peer;
        return false;
      }
    for (const int peer : move.sends)
      if (!channels_.out(peer, lane.index).has_room()) {
        blocker_ = peer;
        return false;
      }
    return true;
  }

  void execute(const InFlight& lane) {
    const Move& move = plan_[lane.next];
    const std::size_t n = count(lane, move.chunk);
    if (n == 0) return;
    const std::size_t skipped = lane.slice * slice_ * width_;
    std::array<kernels::ReduceSource, kernels::kMaxReduceSources> sources;
    for (std::size_t s = 0; s < move.sources.size(); ++s)
      sources[s] = {address(move.sources[s], lane, skipped),
                    move.sources[s].scaled && arithmetic_.scaled};
    std::array<std::byte*, kernels::kMaxReduceSources> destinations;
    std::size_t used = 0;
    if (move.keep) destinations[used++] = output(move.chunk) + skipped;
    // To remote peers, data in the caller's memory is sent from there instead of from a slot.
    const std::byte* const lent = move.keep ? destinations[0] : unchanged(move, sources[0]);
    const auto lends = [&](const Outbox& out) { return lent != nullptr && out.lends(); };
    for (const int peer : move.sends)
      if (Outbox& out = channels_.out(peer, lane.index); !lends(out))
        destinations[used++] = out.slot();
    if (used > 0)
      kernels::cpu::reduce(transfer_.call.dtype, arithmetic_.reduction,
                           {sources.data(), move.sources.size()}, {destinations.data(), used},
                           Elements(n), arithmetic_.scale);
    for (const int peer : move.sends)
      if (Outbox& out = channels_.out(peer, lane.index); lends(out))
        out.post_from(lent, n * width_);
      else
        out.post(n * width_);
    for (const Source& source : move.sources)
      if (source.kind == Source::Kind::message) channels_.in(source.peer, lane.index).release();
  }

  // Returns the data's address if the move only forwards this rank's own data, unchanged; otherwise
  // null.
  [[nodiscard]] static const std::byte* unchanged(const Move& move,
                                                  const kernels::ReduceSource& source) {
    const bool plain =
        move.sources.size() == 1 && !source.scaled && move.sources[0].kind != Source::Kind::message;
    return plain ? source.data : nullptr;
  }

  [[nodiscard]] const std::byte* address(const Source& source, const InFlight& lane,
                                         std::size_t skipped) {
    switch (source.kind) {
      case Source::Kind::message:
        return channels_.in(source.peer, lane.index).slot();
      case Source::Kind::work:
        return output(source.chunk) + skipped;
      default:
        return transfer_.input.data() +
               input_offset(schedule_, peers_.rank(), source.chunk) * width_ + skipped;
    }
  }

  [[nodiscard]] std::byte* output(int chunk) const {
    return transfer_.output.data() + output_offset(schedule_, peers_.rank(), chunk) * width_;
  }

  void wait() {
    peers_.health().at_step(plan_[oldest().next].step);
    peers_.wait(blocker_, [this] {
      for (std::size_t i = 0; i < kSlicesInFlight; ++i) {
        const InFlight& lane = lanes_[(oldest_ + i) % kSlicesInFlight];
        if (lane.slice < slices_ && ready(lane)) return true;
      }
      return false;
    });
  }

  Peers& peers_;
  Channels& channels_;
  const Schedule& schedule_;
  const Plan& plan_;
  const Transfer& transfer_;
  Arithmetic arithmetic_;
  std::size_t width_;   // bytes of an element
  std::size_t slice_;   // elements of a slice
  std::size_t slices_;  // of the longest chunk
  std::size_t next_slice_ = 0;
  std::array<InFlight, kSlicesInFlight> lanes_;
  std::size_t oldest_ = 0;
  int blocker_ = -1;
};

}  // namespace

void run_in_slots(Peers& peers, Channels& channels, const Schedule& schedule, const Plan& plan,
                  const Transfer& transfer) {
  SlotRun(peers, channels, schedule, plan, transfer).run();
}

}  // namespace ringsmith::comm
