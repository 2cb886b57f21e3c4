// Works out, from the plans of all ranks, who reads and writes whose communication memory directly,
// and after whom: no staging, ranks read and write each other's buffers.
//
// A message becomes one of two things:
//   pull  the receiver reads the chunk where the sender has it: a rank reduces straight from the
//         buffers of all others;
//   push  the sender stores the result straight into the receiver's buffer while it still has it
//         in registers: used when the receiver only copies what the sender has just computed.
//
//     two-shot, rank r:   out[r] of every rank = in[r] of rank 0 + in[r] of rank 1 + ...
//                         one pass: each element is read once per rank and stored once per rank
//
// Hand-off: every rank counts the moves it has completed. What must be complete before a move may
// touch memory is worked out beforehand from the plans of all ranks, as pairs (rank, moves): data
// that a pull reads, readers whose data a store would overwrite, and at the end every rank that
// touches this rank's buffers. Some schedules cannot run this way (two ranks would wait for each
// other's reads, as in an exchange in place); they have no mapping, and go through slots.
#pragma once

#include <optional>

#include "runtime/comm/executor/plan.hpp"

namespace ringsmith::comm {

// A chunk in some rank's buffer.
struct ChunkPlace {
  int rank = 0;
  bool in_input = false;   // else in the output
  std::size_t offset = 0;  // elements from the start of the buffer
  int chunk = 0;  // of the schedule: the same thing for executors with buffers of their own
};

// How the buffers of the ranks lie.
enum class Placement : std::uint8_t {
  apart,     // input and output are separate on every rank
  in_place,  // on some rank they share memory
  staged     // apart, and both have room for every chunk of the work buffer, on every rank
};

struct MappedMove {
  struct After {
    int rank = 0;
    std::uint32_t moves = 0;  // that the rank must have completed
  };
  std::vector<After> after;
  std::vector<ChunkPlace> sources;
  std::vector<bool> raw;                 // by source, as in Source
  std::vector<ChunkPlace> destinations;  // none: the work is done by others
  std::size_t count = 0;                 // elements
  int chunk = 0;                         // where it goes; all places hold equally much
  bool awaited = false;                  // by any rank
  int step = 0;
};

struct Mapping {
  std::vector<MappedMove> moves;
  std::vector<MappedMove::After> finally;  // before the caller may touch the buffers again
};

// The mapping of every rank, or nothing if there is none. Staged, every shipped schedule has one.
[[nodiscard]] std::optional<std::vector<Mapping>> make_mappings(const Schedule& schedule,
                                                                const std::vector<Plan>& plans,
                                                                Placement placement);

}  // namespace ringsmith::comm
