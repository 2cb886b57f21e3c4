#include "runtime/comm/executor/engine.hpp"

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

namespace {

// Up to this size of a rank's part, one hand-off with a copy beats two without (bytes). With more
// than two ranks there are usually fewer cores than ranks, and a hand-off costs a context switch.
constexpr std::size_t kSmallForTwo = std::size_t{8} << 10;
constexpr std::size_t kSmallForMore = std::size_t{16} << 10;

std::uint64_t offset_in(const Host& host, const std::byte* data, Bytes size) {
  if (!host.all_local()) return kNotShared;
  const auto offset = host.arena()->offset_of(data, size);
  return offset ? offset->value : kNotShared;
}

bool is_p2p(Op op) { return op == Collective::send || op == Collective::recv; }

}  // namespace

bool is_small(const Call& call, int world) {
  return call.algorithm == Algorithm::automatic &&
         call.bytes() <= (world <= 2 ? kSmallForTwo : kSmallForMore);
}

Engine::Engine(Host& host)
    : host_(host),
      roll_call_(host),
      channels_(host),
      library_(host.rank(), host.size(), host_algorithm, host.node_of()),
      buffers_{std::vector<std::byte*>(static_cast<std::size_t>(host.size())),
               std::vector<std::byte*>(static_cast<std::size_t>(host.size()))} {}

void Engine::run(const Transfer& transfer) {
  host_.check_usable();
  host_.enter(transfer.call, transfer.sequence, transfer.called_at());
  if (transfer.call.collective == Collective::barrier) {
    roll_call_.answer(transfer.call, transfer.sequence);
    roll_call_.await_all();
  } else if (is_p2p(transfer.call.collective)) {
    run_p2p(host_, channels_, transfer);
  } else {
    run_collective(transfer);
  }
  host_.flush();
  host_.leave();
}

void Engine::run_collective(const Transfer& transfer) {
  const bool small = is_small(transfer.call, host_.size());
  if (small && host_.size() > 2) return run_in_window(host_, roll_call_, transfer);
  const auto input = offset_in(host_, transfer.input.data(), transfer.input.size());
  const auto output = offset_in(host_, transfer.output.data(), transfer.output.size());
  if (small && input == kNotShared) stage_in_window(host_, roll_call_.next(), transfer);
  roll_call_.answer(transfer.call, transfer.sequence, input, output);
  roll_call_.await_all();
  const Sharing sharing =
      look_at_buffers(roll_call_, transfer.call, host_.size(), buffers_,
                      [&](int r, std::uint64_t offset) { return host_.base(r) + offset; });
  if (small && sharing.none) return take_from_window(host_, roll_call_.round(), transfer);
  Prepared& prepared = library_.find(transfer.call);
  const Placement placement = sharing.in_place ? Placement::in_place : Placement::apart;
  const Mapping* const mapping = sharing.all ? library_.mapping(prepared, placement) : nullptr;
  if (mapping != nullptr)
    run_mapped(host_, roll_call_, *mapping, buffers_, transfer);
  else
    run_in_slots(host_, channels_, prepared.schedule, prepared.plan, transfer);
}

}  // namespace ringsmith::comm
