#include "runtime/comm/executor/executors.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

namespace {

// The value of a progress counter: the round of the agreement barrier, and the moves completed in
// that round.
std::uint64_t stamp(std::uint64_t round, std::uint64_t moves) { return round << 24 | moves; }

struct HostPlace {
  Peers& peers;
  const Buffers& buffers;
  const Arithmetic arithmetic;
  const DType dtype;
  const std::uint64_t round;

  void at_step(int step) { peers.health().at_step(step); }
  void await(const std::vector<MappedMove::After>& after) {
    for (const auto& [rank, moves] : after) {
      const auto& progress = peers.segments().control(rank).progress;
      const std::uint64_t enough = stamp(round, moves);
      peers.wait(rank, [&] { return progress.load() >= enough; });
    }
  }
  [[nodiscard]] std::byte* address(const ChunkPlace& place) const {
    const auto r = static_cast<std::size_t>(place.rank);
    return (place.in_input ? buffers.input[r] : buffers.output[r]) + place.offset * size_of(dtype);
  }
  void reduce(const MappedMove& move, std::span<const kernels::ReduceSource> sources,
              std::span<std::byte* const> outputs) {
    kernels::cpu::reduce(dtype, arithmetic.reduction, sources, outputs, Elements(move.count),
                         arithmetic.scale);
  }
  void publish(std::uint64_t moves) {
    peers.segments().publish(peers.segments().mine().progress, stamp(round, moves));
  }
};

}  // namespace

void run_mapped(Peers& peers, const AgreementBarrier& agreement, const Mapping& mapping,
                const Buffers& buffers, const Transfer& transfer) {
  const Arithmetic arithmetic = transfer.arithmetic(peers.size());
  HostPlace place{peers, buffers, arithmetic, transfer.call.dtype, agreement.round()};
  run_moves(mapping, arithmetic, place);
}

}  // namespace ringsmith::comm
