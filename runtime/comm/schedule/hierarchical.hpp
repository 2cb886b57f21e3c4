// Hierarchical all-reduce: sends as little as possible between nodes.
//
// Links are fast within a node and slow between nodes. Rank l of every node owns the l-th part of
// the buffer. Each node sums its ranks' copies of each part, the owners of the same part on all
// nodes sum theirs over the network, and each node distributes the results. Between nodes, a rank
// sends only data of its part, 1/m of the buffer.
//
//     2 nodes of m = 4                node 0                          node 1
//     1. reduce-scatter within   r0 <-> r1 <-> r2 <-> r3         r4 <-> r5 <-> r6 <-> r7
//     2. ring between nodes       `-----------------------------'  part 0: r0 - r4
//        (one for each part)             `-----------------------------'  part 1: r1 - r5, ...
//     3. all-gather within       r0 <-> r1 <-> r2 <-> r3         r4 <-> r5 <-> r6 <-> r7
//
// n nodes of m ranks, elements sent:
//
// | phase          | messages of one rank | by one rank                 | between nodes, in all   |
// |----------------|----------------------|-----------------------------|-------------------------|
// | reduce-scatter | m - 1                | count (m - 1) / m           | 0                       |
// | ring           | 2 (n - 1)            | 2 count (n - 1) / (n m)     | 2 count (n - 1)         |
// | all-gather     | m - 1                | count (m - 1) / m           | 0                       |
//
// 2 count (n - 1) is the minimum for any all-reduce between n nodes. A flat ring over the same
// ranks in order sends 2 count (n m - 1) / m, the pairwise two-shot m times the minimum. Within a
// node the exchange is pairwise (direct.hpp).
//
// If nodes have different sizes, m is the size of the smallest. A rank beyond the first m of its
// node sends its buffer to one of these m at the start, and receives the result from it at the end.
//
// The sums, for chunk (l, j): S[a] = ((y[l] + y[l+1]) + ...) over the first m ranks of node a,
// modulo m, where y is a rank's value after the values of the ranks beyond the first m have been
// added to it: ((x[l] + x[l+m]) + x[l+2m]) + ...; then over nodes (...((S[j+1] + S[j+2]) + ...) +
// S[j], modulo n.
//
// GPUs (device/nodes_backend.cpp) take the buffer in pieces, so that the links within a node and
// the network work at the same time. In a node of m ranks a piece has m equal parts. The phases
// within a node are rings, each of them one kernel; ring p runs while the node sums piece p + 1:
//
//     GPU        [sum piece 0][sum piece 1]  [all-gather 0][sum piece 2]  [all-gather 1] ...
//     network                 [ring, piece 0]              [ring, piece 1]
//
// Every rank sends the bytes of the table. Only the sum of a node differs, and is the ring's
// (ring.hpp): S[a] = (...((x[l+1] + x[l+2]) + x[l+3]) + ...) + x[l], modulo m.
//
// If nodes have different sizes, their parts begin at different places. Between two places where
// some part begins, a piece has one owner in each node, and these owners form a ring:
//
//     3 ranks:  |   r0    |    r1   |    r2   |     segments: 0 r0 - r3    2 r1 - r4
//     2 ranks:  |      r3      |      r4      |               1 r1 - r3    3 r2 - r4
//               0         2    3    4         6     units
//
// A rank runs its rings in ascending order, so the lowest unfinished ring can always proceed. No
// rank idles within its node, and the nodes still send 2 count (n - 1) elements in all. A node of
// one rank owns whole pieces, and does nothing in the phases within the node.
#pragma once

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

// Requires world >= 1; node_of is as in schedule.hpp. With one node this is the pairwise two-shot;
// with one rank per node, the ring.
[[nodiscard]] Schedule hierarchical_all_reduce(int world, std::size_t count,
                                               const std::vector<int>& node_of);

// The part of a piece that has one owner in each node.
struct NodeSegment {
  int begin = 0, end = 0;   // units of the piece
  std::vector<int> owners;  // the rank of each node
};

// How nodes divide a piece. A unit is the part of a piece that all nodes' parts are multiples of.
struct NodeShares {
  int units = 1;         // of a piece: the least common multiple of the nodes' sizes
  int largest_part = 1;  // units
  std::vector<NodeSegment> segments;

  // Returns the number of elements of a unit, at least 1, if no part has more than `most` elements.
  // From kEvenUnit on it is a multiple of kEvenUnit, so that parts are aligned for kernels.
  [[nodiscard]] std::size_t longest_unit(std::size_t most) const;
  static constexpr std::size_t kEvenUnit = 64;
};

// `nodes` has the ranks of each node (ranks_of_nodes).
[[nodiscard]] NodeShares shares_of_nodes(const std::vector<std::vector<int>>& nodes);

// A piece: elements [offset, offset + units * unit).
struct NodePiece {
  std::size_t offset = 0, unit = 0;  // elements
  // Returns the elements of units [begin, end), cut at the end of the buffer of `count` elements.
  [[nodiscard]] Chunk part_of(int begin, int end, std::size_t count) const;
};

// Cuts a buffer into pieces whose units have at most `most` elements (at least 1). If `units` does
// not divide the count, the units of the last piece have one element, and the last ones none.
[[nodiscard]] std::vector<NodePiece> node_pieces(std::size_t count, int units, std::size_t most);

// The whole schedule for GPUs, in parts of at most `most` elements.
[[nodiscard]] Schedule hierarchical_in_pieces(int world, std::size_t count,
                                              const std::vector<int>& node_of, std::size_t most);

// The part of that schedule between nodes, for one segment of one piece: its owners form a ring and
// all-reduce a buffer of `count` elements. The other ranks do nothing.
[[nodiscard]] Schedule ring_between_nodes(int world, std::size_t count,
                                          const std::vector<int>& node_of,
                                          const NodeSegment& segment);

}  // namespace ringsmith::comm
