// A collective is a schedule, and a schedule is data.
//
// A Schedule says, for every rank, which chunk it sends to whom and which chunk it receives from
// whom, step by step. It is a pure function of (algorithm, world size, count): no memory, no
// sockets, no time. The checker proves it, the simulator prices it, the player draws it, and one
// executor per transport runs it. A student's own schedule runs on all four unchanged.
//
//     ring all-reduce, 3 ranks, step 0 (reduce-scatter)        the work buffer of each rank
//                                                              [chunk 0][chunk 1][chunk 2]
//        rank 0 --chunk 2--> rank 1 --chunk 0--> rank 2 --chunk 1--> rank 0
//
// Meaning of one Step of one rank:
//   1. the send part is posted: the chunk as it is now, before this step's receive;
//   2. the receive part completes: copy replaces the chunk, reduce does
//      chunk = received (op) chunk.
// A message may carry several chunks that follow each other; executors move one chunk at a time,
// and run one_chunk_steps() of the schedule.
// A receive from oneself (separate_input only) is a local step: the chunk comes from this rank's
// own input, and there is no message. A step may do nothing: step s is then the same round on all
// ranks. Sends do not wait for the matching receive (up to k slots); receives do. Between two
// ranks, messages match in order. A rank's steps run in order; ranks are not otherwise
// synchronised.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/units.hpp"
#include "runtime/comm/types/collective.hpp"

namespace ringsmith::comm {

// A rank, step or slot as an index.
inline std::size_t at(int i) { return static_cast<std::size_t>(i); }

// A contiguous range of elements of the work buffer. Zero-length chunks exist (count < world): they
// are part of the schedule, and executors move nothing for them.
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
  Action action = Action::copy;  // what to do with what is received
  int chunks = 1;                // of the message: this many, from send_chunk and recv_chunk on

  [[nodiscard]] bool sends() const { return send_peer != kNobody; }
  [[nodiscard]] bool receives() const { return recv_peer != kNobody; }
  [[nodiscard]] bool idle() const { return !sends() && !receives(); }
  bool operator==(const Step&) const = default;
};

struct Schedule {
  std::string algorithm;  // "ring", "gloo_ring", "direct", "hierarchical", ...
  Collective collective = Collective::all_reduce;
  int world = 1;
  int root = 0;           // broadcast, reduce, gather, scatter
  std::size_t count = 0;  // elements of the work buffer; all chunks lie inside it
  std::vector<Chunk>
      chunks;  // for all_to_all: chunk p is the part for (input) or from (output) rank p
  // Sends and local steps read a separate input buffer, of the same chunks, instead of the work
  // buffer, which starts undefined and is fully written by the steps (all_to_all, one_shot). If the
  // caller's input and output are the same memory, the executor sets the input aside first.
  bool separate_input = false;
  std::vector<std::vector<Step>> steps;  // [rank][step]
  std::vector<int> node_of;              // [rank]: its node; empty: one node, or it does not matter

  void add(int rank, const Step& step) { steps[static_cast<std::size_t>(rank)].push_back(step); }
};

// One without steps, of so many chunks: split_evenly(). UsageError unless world >= 1 and
// 0 <= root < world.
[[nodiscard]] Schedule empty_schedule(const char* algorithm, Collective collective, int world,
                                      std::size_t count, int chunks, int root = 0);

// The same, with one chunk in each message. Steps of one kind that follow each other, carry equally
// many chunks, and neither meet a peer twice nor send on what one of them received, advance
// together, chunk by chunk: who adds up what several peers send has all of a chunk before any of
// the next.
[[nodiscard]] Schedule one_chunk_steps(const Schedule& schedule);

// Elements of all chunks in a message that begins with this chunk.
[[nodiscard]] std::size_t message_count(const Schedule& schedule, int first_chunk, int chunks);

// UsageError unless world >= 1 and 0 <= root < world.
void check_world(int world, int root = 0);

// value modulo world, in 0..world-1 also for negative values: rank arithmetic on the ring.
[[nodiscard]] constexpr int wrap(int value, int world) {
  const int rest = value % world;
  return rest < 0 ? rest + world : rest;
}

// Splits count elements into parts consecutive ranges whose sizes differ by at most one, the larger
// ones first. parts >= 1.
[[nodiscard]] std::vector<Chunk> split_evenly(std::size_t count, int parts);

// Which ranks share a node: where the cheap links are.
//
//     node_of {0, 0, 0, 0, 1, 1, 1, 1}      [0 1 2 3] ===== wire ===== [4 5 6 7]
//
// A node's number says nothing but "the same" or "another"; an empty list means one node.

// [node][rank on it], ranks in order, nodes in the order of their first rank. UsageError if the
// list has not one entry for each rank.
[[nodiscard]] std::vector<std::vector<int>> ranks_of_nodes(const std::vector<int>& node_of,
                                                           int world);

// Ranks 0..k-1 on node 0, the next k on node 1, and so on; the last node may have fewer.
// UsageError unless ranks_per_node >= 1.
[[nodiscard]] std::vector<int> nodes_of(int world, int ranks_per_node);

// Ranks of the busiest node that send to another node.
[[nodiscard]] int senders_per_node(const Schedule& schedule, const std::vector<int>& node_of);

}  // namespace ringsmith::comm
