// Turns the plans of all ranks into direct reads and writes of each other's communication memory,
// without staging.
//
// A message becomes one of two operations:
//   pull  the receiver reads the chunk in the sender's memory;
//   push  the sender stores the result directly in the receiver's buffer while it is still in
//         registers. A message is pushed if the sender does not just send its own input, and the
//         receiver would only copy the message.
//
//     two-shot, rank r:   out[r] of every rank = in[r] of rank r + in[r] of rank r + 1 + ...
//                         one pass: each element is read once per rank and stored once per rank
//
// Every rank counts its completed moves. A move's conditions are pairs (rank, moves), derived in
// advance: before a pull, the data must have been written; before a store, the data that it
// overwrites must have been read; and at the end, every rank that accesses this rank's buffers must
// be done. Some schedules have no mapping and use slots, e.g. an in-place exchange, in which two
// ranks would wait for each other's reads.
#pragma once

#include <optional>

#include "runtime/comm/executor/plan.hpp"

namespace ringsmith::comm {

struct ChunkPlace {
  int rank = 0;
  bool in_input = false;   // else in the output
  std::size_t offset = 0;  // elements from the start of the buffer
  int chunk = 0;           // its index in the schedule, for executors with their own buffers
};

enum class Placement : std::uint8_t {
  apart,     // input and output are separate on every rank
  in_place,  // on some rank they share memory
  staged     // apart, and both have room for every chunk of the work buffer, on every rank
};

struct MappedMove {
  struct After {
    int rank = 0;
    std::uint32_t moves = 0;  // the number that the rank must have completed
  };
  std::vector<After> after;
  std::vector<ChunkPlace> sources;
  std::vector<bool> scaled;              // by source, as in Source
  std::vector<ChunkPlace> destinations;  // empty: other ranks do this move's work
  std::size_t count = 0;                 // elements
  int chunk = 0;                         // index in the schedule; all places have this chunk's size
  bool awaited = false;                  // some rank waits for its completion
  int step = 0;
};

struct Mapping {
  std::vector<MappedMove> moves;
  std::vector<MappedMove::After> finally;  // awaited before the caller may use the buffers again
};

// Returns the mappings of all ranks, or nullopt if the schedule has no mapping. With
// Placement::staged, every built-in schedule has one.
[[nodiscard]] std::optional<std::vector<Mapping>> make_mappings(const Schedule& schedule,
                                                                const std::vector<Plan>& plans,
                                                                Placement placement);

}  // namespace ringsmith::comm
