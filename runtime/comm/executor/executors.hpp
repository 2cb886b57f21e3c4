// The executors of the host. schedule/select.hpp chooses one for each collective. small_messages
// copies before and after the agreement barrier; mapped, slots and plain_ring run after it, and
// give the same bits for the same schedule. send and recv use p2p, without a barrier.
//
//   mapped          directly in the ranks' communication memory, by a mapping (mapping.hpp)
//   slots           on any memory, by a plan (plan.hpp): messages through the channels' slots
//   small_messages  one copy, one hand-off, sums in rank order (staging.cpp)
//   p2p             send and recv
//   plain_ring      the ring all-reduce in its readable form (plain_ring.cpp)
#pragma once

#include <array>
#include <span>

#include "kernels/reduce.hpp"
#include "runtime/comm/executor/mapping.hpp"
#include "runtime/comm/executor/plan.hpp"
#include "runtime/comm/schedule/select.hpp"
#include "runtime/comm/transport/agreement_barrier.hpp"
#include "runtime/comm/transport/channel.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

// The addresses, in this process, of all ranks' buffers, indexed by rank.
struct Buffers {
  std::vector<std::byte*> input, output;
};

// Sets each buffer's address to resolve(rank, announced value), or to null if the rank has no such
// buffer in this call. If a rank does not share a buffer that it uses, its entries stay unchanged
// and must not be used. The returned Sharing is the same on all ranks.
template <class Resolve>
Sharing look_at_buffers(const AgreementBarrier& agreement, const Call& call, int world,
                        Buffers& buffers, Resolve resolve) {
  // The sizes of the two buffers are the same on all ranks that have them.
  const Contract contract = contract_of(call.collective);
  const std::size_t part = call.bytes(), all = call.work_count(world) * size_of(call.dtype);
  const std::size_t input = contract.input == Extent::own ? part : all;
  const std::size_t output = contract.output == Extent::own ? part : all;
  Sharing sharing;
  for (int r = 0; r < world; ++r) {
    const Answer& answer = agreement.answer_of(r);
    const std::uint64_t in = answer.input.load(std::memory_order_relaxed);
    const std::uint64_t out = answer.output.load(std::memory_order_relaxed);
    const bool has_input = has(contract.input, r, call.root);
    const bool has_output = has(contract.output, r, call.root);
    sharing.none = sharing.none && in == kNotShared;
    if ((has_input && in == kNotShared) || (has_output && out == kNotShared)) {
      sharing.all = false;
      continue;
    }
    if (has_input && has_output)
      sharing.in_place = sharing.in_place || (in < out + output && out < in + input);
    const auto i = static_cast<std::size_t>(r);
    buffers.input[i] = has_input ? resolve(r, in) : nullptr;
    buffers.output[i] = has_output ? resolve(r, out) : nullptr;
  }
  return sharing;
}

// Runs this rank's moves of a mapping in order. A Place is the host (mapped.cpp) or a stream
// (device/stream_engine.cpp); it has
//
//   at_step(step)                      the schedule's step, for error messages; -1 after the last
//   await(after)                       waits, or makes the stream wait, for other ranks' moves
//   address(chunk place)               returns the chunk's address, a std::byte*
//   reduce(move, sources, outputs)     outputs = sources[0] op sources[1] op ...
//   publish(moves)                     tells the other ranks that this many moves are done
template <class Place>
void run_moves(const Mapping& mapping, const Arithmetic& arithmetic, Place& place) {
  std::array<kernels::ReduceSource, kernels::kMaxReduceSources> sources;
  std::array<std::byte*, kernels::kMaxReduceSources> outputs;
  for (std::size_t m = 0; m < mapping.moves.size(); ++m) {
    const MappedMove& move = mapping.moves[m];
    if (!move.destinations.empty()) {
      place.at_step(move.step);
      place.await(move.after);
      for (std::size_t s = 0; s < move.sources.size(); ++s)
        sources[s] = {place.address(move.sources[s]), arithmetic.scaled && move.scaled[s]};
      for (std::size_t d = 0; d < move.destinations.size(); ++d)
        outputs[d] = place.address(move.destinations[d]);
      place.reduce(move, std::span(sources).first(move.sources.size()),
                   std::span(outputs).first(move.destinations.size()));
    }
    if (move.awaited) place.publish(m + 1);
  }
  place.at_step(-1);
  place.await(mapping.finally);
}

void run_mapped(Peers& peers, const AgreementBarrier& agreement, const Mapping& mapping,
                const Buffers& buffers, const Transfer& transfer);

// Chunks are cut into slices that fit into a slot. The whole plan runs for slice 0 of all chunks,
// then for slice 1, and so on, so that received data is still in the cache when it is sent on. Two
// slices are in flight, each on its own lane; one moves while the other waits.
//
//     lane 0   [slice 0: send . . . reduce+send . . copy][slice 2: send . . . reduce+send ...
//     lane 1      [slice 1: send . . . reduce+send . . copy][slice 3: ...
void run_in_slots(Peers& peers, Channels& channels, const Schedule& schedule, const Plan& plan,
                  const Transfer& transfer);

// Runs a call with small messages. Every rank copies its contribution to its staging memory,
// completes the agreement barrier, and reads the others' staging memory. This takes only one
// hand-off.
//
//     rank 0   [stage]--answer--await_all--[take from 0, 1, 2] --> next call
//     rank 1   [stage]--answer--await_all--[take from 0, 1, 2]
//     rank 2      [stage]--answer--await_all--...
//
// Messages longer than the staging memory are sent in blocks, with one agreement barrier each. Sums
// are in rank order: ((x0 + x1) + x2) + ...
void run_staged(Segments& segments, AgreementBarrier& agreement, const Transfer& transfer);

// The two halves of a collective that fits into one block. Between them, the caller runs the
// agreement barrier whose number is `round`.
void stage(Segments& segments, std::uint64_t round, const Transfer& transfer);
void take_staged(Segments& segments, std::uint64_t round, const Transfer& transfer);

void ring_all_reduce(Peers& peers, Channels& channels, const Transfer& transfer);

// Runs send and recv, through a dedicated lane.
//
// The first slot of a message carries the sender's call. The receiver compares its dtype, count and
// kind of memory with its own. The payload follows. A send returns when the whole payload is in
// slots, so it does not wait if the payload fits in kSlots - 1 slots and the lane is empty.
void run_p2p(Peers& peers, Channels& channels, const Transfer& transfer);

// The content of a message's first slot: a copy of the sender's CallRecord.
struct MessageHeader {
  std::uint64_t call, count, sequence, site;
};
void send_header(Peers& peers, Outbox& out, int peer);
// Throws MismatchError if the message does not match this rank's call, and whatever Peers::wait()
// throws.
void receive_header(Peers& peers, Inbox& in, const Transfer& transfer);

}  // namespace ringsmith::comm
