// Double binary tree: two trees, half of the buffer through each, so that every rank works.
//
// In one binary tree half of the ranks are leaves, which only send on the way up and only receive
// on the way down. In two trees with leaves and inner ranks exchanged each rank is inner in one and
// leaf in the other, and every link is busy both ways.
//
//     8 ranks, in order of position         tree 0                      tree 1 (mirrored)
//                                                7                      0
//     leaves are the odd positions         3  /                          \  4
//     (1-based: ranks 0, 2, 4, ...)      1   5                          2   6
//                                       0 2 4 6                        1 3 5 7
//
// Each half goes up in pieces: while a rank sums one, its children send the next. When all pieces
// are summed at the roots, they come down the same way. A rank takes turns between its trees as the
// pieces come by: up, piece i of a tree is at depth d at time i + most depth - d; down, at i + d.
//
// | steps of one rank                          | elements sent by one rank, at most               |
// |--------------------------------------------|--------------------------------------------------|
// | 2 k for each neighbour, up to 4 in both    | about 2 count: half to each neighbour of a tree, |
// | trees together (k pieces of a half)        | up to the parent and down to the children        |
//
// One slot a connection is enough. Without any, two ranks that are each other's parent, one in each
// tree, would both send first.
//
// The time grows with log2(world) + k, where the ring's grows with the world.
//
// The sums. With tree positions, S(v) = S(right) + (S(left) + x[v]), missing children left out.
//
// Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
// 2009.
#pragma once

#include <array>

#include "runtime/comm/schedule/schedule.hpp"

namespace ringsmith::comm {

// A rank's neighbours in tree 0 or 1; kNobody where there is none.
struct TreeNode {
  int parent = kNobody;
  std::array<int, 2> children{kNobody, kNobody};  // left, right

  [[nodiscard]] int degree() const {
    return (parent != kNobody) + (children[0] != kNobody) + (children[1] != kNobody);
  }
};
[[nodiscard]] TreeNode double_tree_node(int world, int rank, int tree);

// World >= 1. pieces: of each half; 0: by the count, one for each 16 Ki elements, at most 16.
[[nodiscard]] Schedule double_tree_all_reduce(int world, std::size_t count, int pieces = 0);

}  // namespace ringsmith::comm
