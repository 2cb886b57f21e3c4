// Runs a mapping (mapping.hpp) on communication memory that all ranks of the call can reach.
#pragma once

#include "runtime/comm/executor/mapping.hpp"
#include "runtime/comm/transport/agreement_barrier.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

// Where the buffers of all ranks are in this process's address space.
struct Buffers {
  std::vector<std::byte*> input, output;
};

// What all ranks said in the agreement barrier about their buffers: which of them can be reached by
// the others where they lie.
struct Sharing {
  bool all = true;        // every buffer that the call uses, of every rank
  bool none = true;       // no rank's input
  bool in_place = false;  // some rank's input and output share memory
};

// Fills in where the shared buffers are, as resolve(rank, what the rank said) gives it; null where
// a rank has no such buffer, or does not share it. All ranks come to the same Sharing.
template <class Resolve>
Sharing look_at_buffers(const AgreementBarrier& agreement, const Call& call, int world,
                        Buffers& buffers, Resolve resolve) {
  // Sizes of the two buffers, the same on all ranks that have them.
  const std::size_t part = call.bytes(), all = part * static_cast<std::size_t>(world);
  using enum Collective;
  const Collective c = call.collective;
  const std::size_t input = c == reduce_scatter || c == scatter ? all : part;
  const std::size_t output = c == all_gather || c == gather ? all : part;
  Sharing sharing;
  for (int r = 0; r < world; ++r) {
    const Arrival& arrival = agreement.arrival(r);
    const std::uint64_t in = arrival.input.load(std::memory_order_relaxed);
    const std::uint64_t out = arrival.output.load(std::memory_order_relaxed);
    const bool root = r == call.root;
    const bool has_input = c != scatter || root;
    const bool has_output = (c != reduce && c != gather) || root;
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

// To be called after a completed agreement barrier of this transfer.
void run_mapped(Peers& peers, const AgreementBarrier& agreement, const Mapping& mapping,
                const Buffers& buffers, const Transfer& transfer);

}  // namespace ringsmith::comm
