#include "runtime/comm/executor/engine.hpp"

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

namespace {

// Up to this size of a rank's contribution, one hand-off beats two (bytes).
constexpr std::size_t kOneShotBytes = std::size_t{8} << 10;

bool fits_one_shot(const Transfer& transfer) {
  const Call& call = transfer.call;
  return call.algorithm == Algorithm::automatic &&
         call.count * size_of(call.dtype) <= kOneShotBytes;
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
  } else if (fits_one_shot(transfer)) {
    run_in_window(host_, roll_call_, transfer);
  } else {
    run_schedule(transfer);
  }
  host_.leave();
}

void Engine::run_schedule(const Transfer& transfer) {
  const Arena& arena = *host_.arena();
  roll_call_.answer(transfer.call, transfer.sequence,
                    offset_in(arena, transfer.input.data(), transfer.input.size()),
                    offset_in(arena, transfer.output.data(), transfer.output.size()));
  roll_call_.await_all();
  Prepared& prepared = library_.find(transfer.call);
  bool in_place = false;
  if (all_shared(transfer, in_place)) {
    if (const Mapping* mapping = library_.mapping(prepared, in_place)) {
      run_mapped(host_, roll_call_, *mapping, buffers_, transfer);
      return;
    }
  }
  run_in_slots(host_, channels_, prepared.schedule, prepared.plan, transfer);
}

bool Engine::all_shared(const Transfer& transfer, bool& in_place) {
  // Sizes of the two buffers, the same on all ranks that have them.
  const std::size_t part = transfer.call.count * size_of(transfer.call.dtype);
  const std::size_t all = part * static_cast<std::size_t>(host_.size());
  const Op op = transfer.call.op;
  const std::size_t input = op == Op::reduce_scatter || op == Op::scatter ? all : part;
  const std::size_t output = op == Op::all_gather || op == Op::gather ? all : part;
  for (int r = 0; r < host_.size(); ++r) {
    const Arrival& arrival = roll_call_.arrival(r);
    const std::uint64_t in = arrival.input.load(std::memory_order_relaxed);
    const std::uint64_t out = arrival.output.load(std::memory_order_relaxed);
    const bool root = r == transfer.call.root;
    const bool has_input = op != Op::scatter || root;
    const bool has_output = (op != Op::reduce && op != Op::gather) || root;
    if ((has_input && in == kNotShared) || (has_output && out == kNotShared)) return false;
    if (has_input && has_output) in_place = in_place || (in < out + output && out < in + input);
    if (has_input) buffers_.input[static_cast<std::size_t>(r)] = host_.base(r) + in;
    if (has_output) buffers_.output[static_cast<std::size_t>(r)] = host_.base(r) + out;
  }
  return true;
}

}  // namespace ringsmith::comm
