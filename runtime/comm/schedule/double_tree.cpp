#include "runtime/comm/schedule/double_tree.hpp"

#include <algorithm>

namespace ringsmith::comm {

namespace {

constexpr std::size_t kPiece = std::size_t{16} << 10;  // elements
constexpr std::size_t kMostPieces = 16;                // of each half

// The tree in order over positions 1..world: a position's height is the number of its trailing
// zeros, as in the numbers that a counter in binary passes through.
int parent_position(int position, int world) {
  const int lowest = position & -position;
  const int up = (position ^ lowest) | (lowest << 1);
  return up <= world ? up : position ^ lowest;  // 0: none
}

std::array<int, 2> child_positions(int position, int world) {
  const int lowest = position & -position;
  if (lowest == 1) return {0, 0};
  int right = lowest / 2;
  while (right > 0 && position + right > world) right /= 2;
  return {position - lowest / 2, right > 0 ? position + right : 0};
}

// Tree 1 is tree 0 read from the other end, or, for an odd world, one rank further on: either way
// odd positions meet even ones.
int position_of(int world, int rank, int tree) {
  if (tree == 0) return rank + 1;
  return world % 2 == 0 ? world - rank : (rank + 1) % world + 1;
}

int rank_at(int world, int position, int tree) {
  if (position == 0) return kNobody;
  if (tree == 0) return position - 1;
  return world % 2 == 0 ? world - position : wrap(position - 2, world);
}

}  // namespace

TreeNode double_tree_node(int world, int rank, int tree) {
  const int position = position_of(world, rank, tree);
  TreeNode node;
  node.parent = rank_at(world, parent_position(position, world), tree);
  const auto children = child_positions(position, world);
  for (std::size_t i = 0; i < 2; ++i) node.children[i] = rank_at(world, children[i], tree);
  return node;
}

Schedule double_tree_all_reduce(int world, std::size_t count, int pieces) {
  check_world(world);
  if (pieces == 0)
    pieces = static_cast<int>(
        std::clamp((count / 2 + kPiece - 1) / kPiece, std::size_t{1}, kMostPieces));
  Schedule schedule;
  schedule.algorithm = "double_tree";
  schedule.collective = Collective::all_reduce;
  schedule.world = world;
  schedule.count = count;
  schedule.chunks = split_evenly(count, 2 * pieces);  // of tree t: from t pieces on
  for (int rank = 0; rank < world; ++rank) {
    const TreeNode nodes[2] = {double_tree_node(world, rank, 0), double_tree_node(world, rank, 1)};
    std::vector<Step> steps;
    // The trees take turns, piece by piece: nobody waits for a piece that its sender has behind one
    // that waits for this rank.
    for (const bool up : {true, false})
      for (int piece = 0; piece < pieces; ++piece)
        for (int tree = 0; tree < 2; ++tree) {
          const TreeNode& node = nodes[tree];
          const int chunk = tree * pieces + piece;
          if (!up && node.parent != kNobody)
            steps.push_back({kNobody, 0, node.parent, chunk, Action::copy});
          for (const int child : node.children)
            if (child != kNobody)
              steps.push_back(up ? Step{kNobody, 0, child, chunk, Action::reduce}
                                 : Step{child, chunk, kNobody, 0, Action::copy});
          if (up && node.parent != kNobody)
            steps.push_back({node.parent, chunk, kNobody, 0, Action::copy});
        }
    schedule.steps.push_back(std::move(steps));
  }
  return schedule;
}

}  // namespace ringsmith::comm
