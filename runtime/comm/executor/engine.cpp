#include "runtime/comm/executor/engine.hpp"

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

namespace {

// Up to this size of a rank's part, one hand-off with a copy beats two without (bytes). With more
// than two ranks there are usually fewer cores than ranks, and a hand-off costs a context switch.
constexpr std::size_t kSmallForTwo = std::size_t{8} << 10;
constexpr std::size_t kSmallForMore = std::size_t{16} << 10;

bool is_small(const Call& call, int world) {
  return call.algorithm == Algorithm::automatic &&
         call.count * size_of(call.dtype) <= (world <= 2 ? kSmallForTwo : kSmallForMore);
}

std::uint64_t offset_in(const Arena& arena, const std::byte* data, Bytes size) {
  const auto offset = arena.offset_of(data, size);
  return offset ? offset->value : kNotShared;
}

bool is_p2p(Op op) { return op == Op::send || op == Op::recv; }

}  // namespace

Engine::Engine(Host& host)
    : host_(host),
      roll_call_(host),
      channels_(host),
      library_(host.rank(), host.size()),
      buffers_{std::vector<std::byte*>(static_cast<std::size_t>(host.size())),
               std::vector<std::byte*>(static_cast<std::size_t>(host.size()))} {}

void Engine::run(const Transfer& transfer) {
  host_.check_usable();
  host_.enter(transfer.call, transfer.sequence);
  if (transfer.call.op == Op::barrier) {
    roll_call_.answer(transfer.call, transfer.sequence);
    roll_call_.await_all();
  } else if (is_p2p(transfer.call.op)) {
    run_p2p(host_, channels_, transfer);
  } else {
    run_collective(transfer);
  }
  host_.leave();
}

void Engine::run_collective(const Transfer& transfer) {
  const Arena& arena = *host_.arena();
  const bool small = is_small(transfer.call, host_.size());
  if (small && host_.size() > 2) return run_in_window(host_, roll_call_, transfer);
  const auto input = offset_in(arena, transfer.input.data(), transfer.input.size());
  const auto output = offset_in(arena, transfer.output.data(), transfer.output.size());
  if (small && input == kNotShared) stage_in_window(host_, roll_call_.next(), transfer);
  roll_call_.answer(transfer.call, transfer.sequence, input, output);
  roll_call_.await_all();
  const Sharing sharing = look_at_buffers(transfer);
  if (small && sharing.none) return take_from_window(host_, roll_call_.round(), transfer);
  Prepared& prepared = library_.find(transfer.call);
  const Mapping* const mapping =
      sharing.all ? library_.mapping(prepared, sharing.in_place) : nullptr;
  if (mapping != nullptr)
    run_mapped(host_, roll_call_, *mapping, buffers_, transfer);
  else
    run_in_slots(host_, channels_, prepared.schedule, prepared.plan, transfer);
}

Engine::Sharing Engine::look_at_buffers(const Transfer& transfer) {
  // Sizes of the two buffers, the same on all ranks that have them.
  const std::size_t part = transfer.call.count * size_of(transfer.call.dtype);
  const std::size_t all = part * static_cast<std::size_t>(host_.size());
  const Op op = transfer.call.op;
  const std::size_t input = op == Op::reduce_scatter || op == Op::scatter ? all : part;
  const std::size_t output = op == Op::all_gather || op == Op::gather ? all : part;
  Sharing sharing;
  for (int r = 0; r < host_.size(); ++r) {
    const Arrival& arrival = roll_call_.arrival(r);
    const std::uint64_t in = arrival.input.load(std::memory_order_relaxed);
    const std::uint64_t out = arrival.output.load(std::memory_order_relaxed);
    const bool root = r == transfer.call.root;
    const bool has_input = op != Op::scatter || root;
    const bool has_output = (op != Op::reduce && op != Op::gather) || root;
    sharing.none = sharing.none && in == kNotShared;
    if ((has_input && in == kNotShared) || (has_output && out == kNotShared)) {
      sharing.all = false;
      continue;
    }
    if (has_input && has_output)
      sharing.in_place = sharing.in_place || (in < out + output && out < in + input);
    if (has_input) buffers_.input[static_cast<std::size_t>(r)] = host_.base(r) + in;
    if (has_output) buffers_.output[static_cast<std::size_t>(r)] = host_.base(r) + out;
  }
  return sharing;
}

}  // namespace ringsmith::comm
