#include "runtime/comm/executor/dispatcher.hpp"

namespace ringsmith::comm {

namespace {

std::uint64_t offset_in(const Segments& segments, const std::byte* data, Bytes size) {
  if (!segments.all_local()) return kNotShared;
  const auto offset = segments.arena()->offset_of(data, size);
  return offset ? offset->value : kNotShared;
}

}  // namespace

Dispatcher::Dispatcher(Peers& peers)
    : peers_(peers),
      agreement_(peers),
      channels_(peers.segments()),
      schedules_(peers.rank(), peers.size(), peers.segments().node_of()),
      buffers_{std::vector<std::byte*>(static_cast<std::size_t>(peers.size())),
               std::vector<std::byte*>(static_cast<std::size_t>(peers.size()))} {}

void Dispatcher::run(const Transfer& transfer) {
  peers_.health().check_usable();
  peers_.health().enter(transfer.call, transfer.sequence, transfer.called_at());
  if (transfer.call.collective == Collective::barrier) {
    agreement_.answer();
    agreement_.await_all();
  } else if (transfer.call.is_message()) {
    run_p2p(peers_, channels_, transfer);
  } else {
    run_collective(transfer);
  }
  peers_.waiter().flush();
  peers_.health().leave();
}

void Dispatcher::run_collective(const Transfer& transfer) {
  const auto choice_with = [&](const Sharing& sharing) {
    return choose(transfer.call, peers_.size(), Route::host, sharing);
  };
  // Small messages must be staged before the barrier, although only the barrier tells whether the
  // other ranks' buffers are shared.
  const Choice early = choice_with(kNothingShared);
  const bool may_stage = early.executor == Executor::small_messages;
  if (may_stage && early.settled) return run_staged(peers_.segments(), agreement_, transfer);
  if (early.executor == Executor::plain_ring) {
    agreement_.answer();
    agreement_.await_all();
    return ring_all_reduce(peers_, channels_, transfer);
  }
  const auto input = offset_in(peers_.segments(), transfer.input.data(), transfer.input.size());
  const auto output = offset_in(peers_.segments(), transfer.output.data(), transfer.output.size());
  if (may_stage && input == kNotShared) stage(peers_.segments(), agreement_.next(), transfer);
  agreement_.answer(input, output);
  agreement_.await_all();
  const Sharing sharing = look_at_buffers(
      agreement_, transfer.call, peers_.size(), buffers_,
      [&](int r, std::uint64_t offset) { return peers_.segments().base(r) + offset; });
  const Choice choice = choice_with(sharing);
  if (choice.executor == Executor::small_messages)
    return take_staged(peers_.segments(), agreement_.round(), transfer);
  Prepared& prepared = schedules_.find(transfer.call, choice.schedule);
  const Placement placement = sharing.in_place ? Placement::in_place : Placement::apart;
  const Mapping* const mapping =
      choice.executor == Executor::mapped ? schedules_.mapping(prepared, placement) : nullptr;
  if (mapping != nullptr)
    run_mapped(peers_, agreement_, *mapping, buffers_, transfer);
  else
    run_in_slots(peers_, channels_, prepared.schedule, prepared.plan, transfer);
}

}  // namespace ringsmith::comm
