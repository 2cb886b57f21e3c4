// A collective is a schedule, and a schedule is data.
//
// A Schedule says, for every rank and step, which chunk the rank sends to which peer, and which
// chunk it receives from which peer. It is computed from plain values (algorithm, world size,
// count, ...). The checker proves it correct, the simulator computes its time, the player draws it,
// and the executors run it. All of them also take a student's own schedule.
//
//     ring all-reduce, 3 ranks, step 0 (reduce-scatter)        the work buffer of each rank
//                                                              [chunk 0][chunk 1][chunk 2]
//        rank 0 --chunk 2--> rank 1 --chunk 0--> rank 2 --chunk 1--> rank 0
//
// Meaning of one Step of one rank:
//   1. the send part is posted: the chunk as it is now, before this step's receive;
//   2. the receive part completes: copy replaces the chunk; reduce does
//      chunk = chunk (op) received.
// A message may carry several consecutive chunks; executors move one chunk at a time
// (one_chunk_steps()). A receive from the rank itself (separate_input only) is a local step: the
// chunk comes from the rank's own input, without a message. A step may be idle, so that step s is
// the same round on all ranks. A send waits only for a free slot, a receive for the send. Messages
// between two ranks match in order. A rank's steps run in order; ranks are not otherwise
// synchronised.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/units.hpp"
#include "runtime/comm/types/collective.hpp"

namespace ringsmith::comm {

inline std::size_t at(int i) { return static_cast<std::size_t>(i); }

// A contiguous range of the work buffer. With fewer elements than ranks, some chunks are empty;
// executors move no data for empty chunks.
struct Chunk {
  std::size_t offset = 0;  // elements
  std::size_t count = 0;   // elements
  bool operator==(const Chunk&) const = default;
};

enum class Action : std::uint8_t { copy, reduce };

constexpr int kNobody = -1;

struct Step {
  int send_peer = kNobody;  // rank, or kNobody
  int send_chunk = 0;       // index into Schedule::chunks
  int recv_peer = kNobody;
  int recv_chunk = 0;
  Action action = Action::copy;  // applied to the received chunks
  int chunks = 1;                // per message, from send_chunk and recv_chunk on

  [[nodiscard]] bool sends() const { return send_peer != kNobody; }
  [[nodiscard]] bool receives() const { return recv_peer != kNobody; }
  [[nodiscard]] bool idle() const { return !sends() && !receives(); }
  bool operator==(const Step&) const = default;
};

struct Schedule {
  Algorithm algorithm = Algorithm::own;
  Collective collective = Collective::all_reduce;
  int world = 1;
  int root = 0;               // of broadcast, reduce, gather, scatter
  std::size_t count = 0;      // elements of the work buffer, which contains all chunks
  std::vector<Chunk> chunks;  // all_to_all: chunk p is for (input) or from (output) rank p
  // True for all_to_all and one_shot: sends and local steps read a separate input buffer with the
  // same chunks. The work buffer is undefined before the first step, and the steps write all of it.
  // In place, all_to_all sends each part before it is overwritten (direct.hpp); one_shot needs an
  // executor that stages its input.
  bool separate_input = false;
  std::vector<std::vector<Step>> steps;  // [rank][step]
  std::vector<int> node_of;              // [rank] -> node; empty: one node, or irrelevant

  void add(int rank, const Step& step) { steps[static_cast<std::size_t>(rank)].push_back(step); }
};

// Returns a schedule without steps; its chunks are cut by split_evenly(). Throws UsageError unless
// world >= 1 and 0 <= root < world.
[[nodiscard]] Schedule empty_schedule(Algorithm algorithm, Collective collective, int world,
                                      std::size_t count, int chunks, int root = 0);

// Returns the same schedule with one chunk per message. Interleaves consecutive steps chunk by
// chunk if they are of the same kind, carry the same number of chunks, neither send to nor receive
// from the same peer twice, do not overlap partially, and send no chunk that an earlier step
// receives. So a rank that sums messages of several peers gets all copies of a chunk before any
// copy of the next.
[[nodiscard]] Schedule one_chunk_steps(const Schedule& schedule);

// Returns the number of elements in a message of `chunks` chunks that begins with first_chunk.
[[nodiscard]] std::size_t message_count(const Schedule& schedule, int first_chunk, int chunks);

// Throws UsageError unless world >= 1 and 0 <= root < world.
void check_world(int world, int root = 0);

// Returns value modulo world, in [0, world) even for negative values.
[[nodiscard]] constexpr int wrap(int value, int world) {
  const int rest = value % world;
  return rest < 0 ? rest + world : rest;
}

// Returns `parts` consecutive ranges whose sizes differ by at most one, the larger ones first.
// `parts` must be at least 1.
[[nodiscard]] std::vector<Chunk> split_evenly(std::size_t count, int parts);

// node_of tells which ranks share a node, and therefore fast links.
//
//     node_of {0, 0, 0, 0, 1, 1, 1, 1}      [0 1 2 3] === network === [4 5 6 7]
//
// Node numbers are only compared for equality; an empty list means one node.

// Returns the ranks of each node, in order; nodes are in the order of their first ranks. Throws
// UsageError unless the list is empty or has one entry per rank.
[[nodiscard]] std::vector<std::vector<int>> ranks_of_nodes(const std::vector<int>& node_of,
                                                           int world);

// Returns the node_of list with ranks_per_node consecutive ranks on each node; the last node may
// have fewer. Throws UsageError unless ranks_per_node >= 1.
[[nodiscard]] std::vector<int> nodes_of(int world, int ranks_per_node);

// Returns the largest number of ranks of one node that send to other nodes. node_of: not empty.
[[nodiscard]] int senders_per_node(const Schedule& schedule, const std::vector<int>& node_of);

}  // namespace ringsmith::comm
