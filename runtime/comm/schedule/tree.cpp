#include "runtime/comm/schedule/tree.hpp"

#include <algorithm>
#include <tuple>

namespace ringsmith::comm {

namespace {

// Adds one round, in which every subtree of 2 * half ranks moves its value between its first rank
// (the parent) and the first rank of its upper half (the child). Ranks are counted from the root.
void add_round(Schedule& schedule, int half, bool towards_root) {
  const int world = schedule.world;
  for (int v = 0; v < world; ++v) {
    const int rank = wrap(schedule.root + v, world);
    const bool parent = v % (2 * half) == 0 && v + half < world;
    const bool child = v % (2 * half) == half;
    Step step;
    if (parent || child) {
      const int partner = wrap(schedule.root + (parent ? v + half : v - half), world);
      if (parent == towards_root) {
        step.recv_peer = partner;
        step.action = towards_root ? Action::reduce : Action::copy;
      } else {
        step.send_peer = partner;
      }
    }
    schedule.add(rank, step);
  }
}

void add_reduce(Schedule& schedule) {
  for (int round = 0; round < tree_rounds(schedule.world); ++round)
    add_round(schedule, 1 << round, true);
}

void add_broadcast(Schedule& schedule) {
  for (int round = tree_rounds(schedule.world) - 1; round >= 0; --round)
    add_round(schedule, 1 << round, false);
}

}  // namespace

int tree_rounds(int world) {
  int rounds = 0;
  while ((std::int64_t{1} << rounds) < world) ++rounds;
  return rounds;
}

Schedule tree_broadcast(int world, std::size_t count, int root) {
  Schedule schedule = empty_schedule(Algorithm::tree, Collective::broadcast, world, count, 1, root);
  add_broadcast(schedule);
  return schedule;
}

Schedule tree_reduce(int world, std::size_t count, int root) {
  Schedule schedule = empty_schedule(Algorithm::tree, Collective::reduce, world, count, 1, root);
  add_reduce(schedule);
  return schedule;
}

Schedule tree_all_reduce(int world, std::size_t count) {
  Schedule schedule = empty_schedule(Algorithm::tree, Collective::all_reduce, world, count, 1);
  add_reduce(schedule);
  add_broadcast(schedule);
  return schedule;
}

namespace {

constexpr std::size_t kPiece = std::size_t{16} << 10;  // elements
constexpr std::size_t kMostPieces = 16;                // of each half

// Returns the parent in an in-order binary tree over positions 1..world. The height of a position
// is the number of its trailing zero bits.
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

// Tree 1 is tree 0 mirrored or, for an odd world, rotated by one rank. So a rank at an odd position
// of one tree is at an even position of the other, except the last rank of an odd world, which is
// at odd positions of both.
int position_of(int world, int rank, int tree) {
  if (tree == 0) return rank + 1;
  return world % 2 == 0 ? world - rank : (rank + 1) % world + 1;
}

int rank_at(int world, int position, int tree) {
  if (position == 0) return kNobody;
  if (tree == 0) return position - 1;
  return world % 2 == 0 ? world - position : wrap(position - 2, world);
}

class Depths {
 public:
  Depths(int world, int tree) {
    for (int rank = 0; rank < world; ++rank) {
      int hops = -1;
      for (int up = rank; up != kNobody; up = double_tree_node(world, up, tree).parent) ++hops;
      depths_.push_back(hops);
      most_ = std::max(most_, hops);
    }
  }
  [[nodiscard]] int of(int rank) const { return depths_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int most() const { return most_; }

 private:
  std::vector<int> depths_;
  int most_ = 0;
};

// The time at which a rank handles a piece, in units of the time for one piece. A rank is near the
// root of one tree and far from the root of the other. If it handled pieces in plain order, it
// would wait in one tree for pieces that pass through the other, and nothing would overlap.
struct PieceTurn {
  int when, tree, piece;
  bool operator<(const PieceTurn& other) const {
    return std::tie(when, tree) < std::tie(other.when, other.tree);
  }
};

void add_up(std::vector<Step>& steps, int world, int rank, int tree, int chunk) {
  const TreeNode node = double_tree_node(world, rank, tree);
  for (const int child : node.children)
    if (child != kNobody) steps.push_back({kNobody, 0, child, chunk, Action::reduce});
  if (node.parent != kNobody) steps.push_back({node.parent, chunk, kNobody, 0, Action::copy});
}

void add_down(std::vector<Step>& steps, int world, int rank, int tree, int chunk) {
  const TreeNode node = double_tree_node(world, rank, tree);
  if (node.parent != kNobody) steps.push_back({kNobody, 0, node.parent, chunk, Action::copy});
  for (const int child : node.children)
    if (child != kNobody) steps.push_back({child, chunk, kNobody, 0, Action::copy});
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
  if (pieces == 0)
    pieces = static_cast<int>(
        std::clamp((count / 2 + kPiece - 1) / kPiece, std::size_t{1}, kMostPieces));
  Schedule schedule = empty_schedule(Algorithm::double_tree, Collective::all_reduce, world, count,
                                     2 * pieces);  // tree t has the chunks from t * pieces on
  const Depths depths[2] = {Depths(world, 0), Depths(world, 1)};
  for (int rank = 0; rank < world; ++rank) {
    // On the way down, a rank handles a piece one unit of time after its parent; on the way up, one
    // unit after its children.
    std::vector<PieceTurn> up, down;
    for (int tree = 0; tree < 2; ++tree)
      for (int piece = 0; piece < pieces; ++piece) {
        const int depth = depths[tree].of(rank);
        up.push_back({piece + depths[tree].most() - depth, tree, piece});
        down.push_back({piece + depth, tree, piece});
      }
    std::sort(up.begin(), up.end());
    std::sort(down.begin(), down.end());
    std::vector<Step>& steps = schedule.steps[static_cast<std::size_t>(rank)];
    for (const PieceTurn& t : up) add_up(steps, world, rank, t.tree, t.tree * pieces + t.piece);
    for (const PieceTurn& t : down) add_down(steps, world, rank, t.tree, t.tree * pieces + t.piece);
  }
  return schedule;
}

}  // namespace ringsmith::comm
