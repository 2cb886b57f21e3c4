// Binomial trees: log2(world) rounds instead of world - 1, for small messages to or from one rank.
//
//     broadcast from rank 0, 8 ranks                reduce: the same arrows backwards,
//                                                   in the opposite order of rounds
//     round 0   0 ----------------> 4
//     round 1   0 ------> 2         4 ------> 6
//     round 2   0 -> 1    2 -> 3    4 -> 5    6 -> 7
//
// | collective | rounds                | elements sent by one rank, at most       |
// |------------|-----------------------|------------------------------------------|
// | broadcast  | ceil(log2 world)      | count ceil(log2 world), by the root      |
// | reduce     | ceil(log2 world)      | count                                    |
// | all_reduce | 2 ceil(log2 world)    | count ceil(log2 world), by rank 0        |
//
// The sums. With y[v] = x[(root + v) mod world], neighbours are added first, then neighbouring
// pairs, then fours (missing ranks are left out):
//     ((y[0] + y[1]) + (y[2] + y[3])) + ((y[4] + y[5]) + (y[6] + y[7]))
// all_reduce is reduce to rank 0, then broadcast from rank 0, so all ranks get the same bits.
#pragma once

#include <array>

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

// All three require world >= 1. The schedules have one chunk.
[[nodiscard]] Schedule tree_broadcast(int world, std::size_t count, int root);
[[nodiscard]] Schedule tree_reduce(int world, std::size_t count, int root);
[[nodiscard]] Schedule tree_all_reduce(int world, std::size_t count);

// Returns ceil(log2 world), which is 0 for one rank.
[[nodiscard]] int tree_rounds(int world);

// Double binary tree: two trees, each carrying half of the buffer, so that every rank works.
//
// Half of the ranks of a binary tree are leaves, which only send on the way up and only receive on
// the way down. In two trees that swap leaves and inner ranks, each rank is an inner rank in one
// tree and a leaf in the other, except the last rank of an odd world, which is a leaf in both.
//
//     8 ranks, in order of position         tree 0                      tree 1 (mirrored)
//                                                7                      0
//     leaves are the odd positions         3  /                          \  4
//     (1-based: ranks 0, 2, 4, ...)      1   5                          2   6
//                                       0 2 4 6                        1 3 5 7
//
// Each half moves up in pieces: while a rank sums one piece, its children send the next. When all
// pieces are summed at the roots, they move down the same way. A rank serves both trees in the
// order in which pieces arrive: up, piece i is at depth d at time i + greatest depth - d; down, at
// i + d.
//
// | steps of one rank                          | elements sent by one rank, at most               |
// |--------------------------------------------|--------------------------------------------------|
// | 2 k for each neighbour, up to 4 in both    | about 2 count: half to each neighbour of a tree, |
// | trees together (k pieces of a half)        | up to the parent and down to the children        |
//
// One slot per connection is enough. Without slots, two ranks that are each other's parent, one in
// each tree, would both block in their first send.
//
// The time grows with log2(world) + k, the ring's with the world.
//
// The sums. With tree positions, S(v) = S(right) + (S(left) + x[v]), missing children left out.
//
// Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
// 2009.

// A rank's neighbours in tree 0 or 1; kNobody where there is none.
struct TreeNode {
  int parent = kNobody;
  std::array<int, 2> children{kNobody, kNobody};  // left, right

  [[nodiscard]] int degree() const {
    return (parent != kNobody) + (children[0] != kNobody) + (children[1] != kNobody);
  }
};
[[nodiscard]] TreeNode double_tree_node(int world, int rank, int tree);

// Requires world >= 1. pieces: number of pieces of each half; 0: computed from the count, one per
// 16 Ki elements, at most 16.
[[nodiscard]] Schedule double_tree_all_reduce(int world, std::size_t count, int pieces = 0);

}  // namespace ringsmith::comm
