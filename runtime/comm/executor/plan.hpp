// Turns a schedule into the list of moves that one rank executes.
//
// A schedule consists of single steps. Merging steps saves memory traffic:
//   - consecutive receives that reduce into one chunk become one sum of several sources,
//   - a computed chunk is written to its receivers in the same pass (the recvReduceSend of the
//     ring),
//   - a value that no later step reads and the collective does not promise is not stored.
//
//     two-shot, rank 0 of 3                       moves
//     step 0  send chunk 2 -> 2, recv 0 <- 1      chunk 2 = input            -> send to 2
//     step 1  send chunk 1 -> 1, recv 0 <- 2      chunk 1 = input            -> send to 1
//     step 2  send chunk 0 -> 2, recv 1 <- 1      chunk 0 = input + <-1 + <-2 -> keep, send to 2, 1
//     step 3  send chunk 0 -> 1, recv 2 <- 2      chunk 1 = <-1 -> keep;  chunk 2 = <-2 -> keep
//
// Merging changes neither the order of messages between two ranks nor the order of any sum, so
// every executor computes the same bits. It may send a few messages to each peer earlier than the
// schedule does.
#pragma once

#include <vector>

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

struct Source {
  enum class Kind : std::uint8_t {
    input,   // this rank's own contribution, in the caller's buffer
    work,    // this rank's chunk as an earlier move left it
    message  // the message from the peer
  };
  Kind kind = Kind::input;
  int peer = kNobody;
  int chunk = 0;
  bool scaled = false;  // avg multiplies this source by its factor before the reduction
};

// chunk = sources[0] op sources[1] op ...; stored if keep, and sent to every rank of `sends`.
struct Move {
  int chunk = 0;
  std::vector<Source> sources;
  std::vector<int> sends;
  bool keep = false;
  int step = 0;  // schedule step of its last receive, else of its first send; for error messages
};

using Plan = std::vector<Move>;

// Returns the plans of all ranks, without zero-length chunks. Throws Error if the schedule's sends
// and receives do not pair up, or if a rank would wait forever.
[[nodiscard]] std::vector<Plan> make_plans(const Schedule& schedule);

// True if the rank's input holds this chunk before the collective.
[[nodiscard]] bool given(const Schedule& schedule, int rank, int chunk);
// True if the collective promises this chunk to this rank; otherwise the rank's output has no room
// for it.
[[nodiscard]] bool promised(const Schedule& schedule, int rank, int chunk);

// Both return the position of a chunk in the caller's buffer, in elements. Some buffers hold only
// the rank's own chunk (e.g. the input of all_gather, the output of reduce_scatter).
[[nodiscard]] std::size_t input_offset(const Schedule& schedule, int rank, int chunk);
[[nodiscard]] std::size_t output_offset(const Schedule& schedule, int rank, int chunk);

}  // namespace ringsmith::comm
