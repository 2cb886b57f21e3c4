#include <algorithm>
#include <array>

#include "runtime/comm/executor/executors.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

namespace {

// Progress counters hold (round of the agreement barrier, moves completed in it).
std::uint64_t stamp(std::uint64_t round, std::uint64_t moves) { return round << 24 | moves; }

}  // namespace

void run_mapped(Peers& peers, const AgreementBarrier& agreement, const Mapping& mapping,
                const Buffers& buffers, const Transfer& transfer) {
  const Arithmetic arithmetic = arithmetic_of(transfer.call.op, peers.size());
  const std::size_t width = size_of(transfer.call.dtype);
  const std::uint64_t round = agreement.round();
  const auto await = [&](const std::vector<MappedMove::After>& after) {
    for (const auto& [rank, moves] : after) {
      const auto& progress = peers.control(rank).progress;
      const std::uint64_t enough = stamp(round, moves);
      peers.wait(rank, [&] { return progress.load() >= enough; });
    }
  };
  const auto address = [&](const ChunkPlace& place) {
    const auto r = static_cast<std::size_t>(place.rank);
    return (place.in_input ? buffers.input[r] : buffers.output[r]) + place.offset * width;
  };

  for (std::size_t m = 0; m < mapping.moves.size(); ++m) {
    const MappedMove& move = mapping.moves[m];
    if (!move.destinations.empty()) {
      peers.at_step(move.step);
      await(move.after);
      std::array<kernels::ReduceSource, kernels::kMaxReduceSources> sources;
      std::array<std::byte*, kernels::kMaxReduceSources> destinations;
      const bool scale = arithmetic.scaled && (move.sources.size() > 1 || peers.size() == 1);
      for (std::size_t s = 0; s < move.sources.size(); ++s)
        sources[s] = {address(move.sources[s]), scale && move.raw[s]};
      for (std::size_t d = 0; d < move.destinations.size(); ++d)
        destinations[d] = address(move.destinations[d]);
      kernels::cpu::reduce(
          transfer.call.dtype, arithmetic.reduction, {sources.data(), move.sources.size()},
          {destinations.data(), move.destinations.size()}, Elements(move.count), arithmetic.scale);
    }
    if (move.awaited) peers.publish(peers.mine().progress, stamp(round, m + 1));
  }
  peers.at_step(-1);
  await(mapping.finally);
}

}  // namespace ringsmith::comm
