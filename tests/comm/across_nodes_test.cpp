// Tests the schedules for many ranks and several nodes: the order of their sums, the bytes between
// nodes, and that splitting messages of several chunks does not change the result.
#include <algorithm>
#include <numeric>

#include "runtime/analysis/checker.hpp"
#include "runtime/analysis/simulator.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/direct.hpp"
#include "runtime/comm/schedule/halving.hpp"
#include "runtime/comm/schedule/hierarchical.hpp"
#include "runtime/comm/schedule/ring.hpp"
#include "runtime/comm/schedule/tree.hpp"
#include "tests/comm/built_in.hpp"
#include "tests/comm/reference_executor.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::comm;
using namespace ringsmith::comm::testing;

namespace {

// Every rank must have value(chunk, i), the documented sum of element i, bit for bit.
template <class Documented>
void require_sums(const Schedule& schedule, const Buffers& x, Documented value) {
  for (const Schedule& form : {schedule, one_chunk_steps(schedule)}) {
    const Buffers result = execute(form, x);
    for (std::size_t c = 0; c < form.chunks.size(); ++c)
      for (std::size_t i = form.chunks[c].offset; i < form.chunks[c].offset + form.chunks[c].count;
           ++i) {
        const float expected = value(static_cast<int>(c), i);
        for (int rank = 0; rank < form.world; ++rank)
          if (std::memcmp(&result[at(rank)][i], &expected, sizeof expected) != 0)
            FAIL(name_of(form.algorithm) << " world " << form.world << " count " << form.count
                                         << " rank " << rank << " chunk " << c << " element " << i);
      }
  }
}

// The sum as defined in halving.hpp, computed recursively.
float halved(const Buffers& x, std::size_t i, int rank, int distance, int p) {
  if (distance == p) {
    const float own = x[at(rank)][i];
    return p + rank < static_cast<int>(x.size()) ? x[at(p + rank)][i] + own : own;
  }
  return halved(x, i, rank ^ distance, 2 * distance, p) + halved(x, i, rank, 2 * distance, p);
}

float tree_sum(const Buffers& x, std::size_t i, int rank, int tree) {
  const TreeNode node = double_tree_node(static_cast<int>(x.size()), rank, tree);
  float sum = x[at(rank)][i];
  for (const int child : node.children)
    if (child != kNobody) sum = tree_sum(x, i, child, tree) + sum;
  return sum;
}

int root_of(int world, int tree) {
  for (int rank = 0; rank < world; ++rank)
    if (double_tree_node(world, rank, tree).parent == kNobody) return rank;
  return kNobody;
}

// The sum of a node for part l, as defined in hierarchical.hpp.
float node_sum(const Buffers& x, std::size_t i, const std::vector<int>& node, std::size_t l,
               std::size_t m) {
  const auto folded = [&](std::size_t local) {
    float y = x[at(node[local])][i];
    for (std::size_t beyond = local + m; beyond < node.size(); beyond += m)
      y = x[at(node[beyond])][i] + y;
    return y;
  };
  float sum = folded(l);
  for (std::size_t k = 1; k < m; ++k) sum = sum + folded((l + k) % m);
  return sum;
}

std::size_t between_nodes(const Schedule& schedule, const std::vector<int>& node_of) {
  std::size_t elements = 0;
  for (int rank = 0; rank < schedule.world; ++rank)
    for (const Step& step : schedule.steps[at(rank)])
      if (step.sends() && node_of[at(rank)] != node_of[at(step.send_peer)])
        elements += message_count(schedule, step.send_chunk, step.chunks);
  return elements;
}

}  // namespace

TEST_CASE("halving and doubling adds the far ranks first, in every world", "[schedule]") {
  for (const int world : {1, 2, 3, 4, 5, 6, 7, 8, 11, 16})
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, at(world), std::size_t{97}}) {
      const Buffers x = wide_range_inputs(world, count);
      require_sums(halving_doubling_all_reduce(world, count), x,
                   [&](int c, std::size_t i) { return halved(x, i, c, 1, halving_core(world)); });
    }
}

TEST_CASE("the double tree adds along its two trees, in every world", "[schedule]") {
  for (const int world : {1, 2, 3, 4, 5, 6, 7, 8, 11, 16})
    for (const int pieces : {1, 3})
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, at(world), std::size_t{97}}) {
        const Buffers x = wide_range_inputs(world, count);
        require_sums(double_tree_all_reduce(world, count, pieces), x, [&](int c, std::size_t i) {
          const int tree = c / pieces;
          return tree_sum(x, i, root_of(world, tree), tree);
        });
      }
}

TEST_CASE("the two trees span all ranks, and hardly anybody is inner in both", "[schedule]") {
  for (int world = 1; world <= 70; ++world) {
    int inner_twice = 0;
    for (const int tree : {0, 1}) {
      int roots = 0, edges = 0;
      for (int rank = 0; rank < world; ++rank) {
        const TreeNode node = double_tree_node(world, rank, tree);
        if (node.parent == kNobody) ++roots;
        for (const int child : node.children)
          if (child != kNobody) {
            ++edges;
            CHECK(double_tree_node(world, child, tree).parent == rank);
          }
        int hops = 0;
        for (int up = rank; up != kNobody; up = double_tree_node(world, up, tree).parent) ++hops;
        // At most one level deeper than a complete binary tree.
        CHECK((1 << (hops - 1)) <= 2 * world);
      }
      CHECK(roots == 1);
      CHECK(edges == world - 1);
    }
    for (int rank = 0; rank < world; ++rank)
      inner_twice += double_tree_node(world, rank, 0).children[0] != kNobody &&
                             double_tree_node(world, rank, 1).children[0] != kNobody
                         ? 1
                         : 0;
    CHECK(inner_twice == 0);
  }
}

TEST_CASE("the hierarchical sum is made within nodes first, on every shape of nodes",
          "[schedule]") {
  for (int world = 1; world <= 9; ++world)
    for (const auto& shape : shapes_of_nodes(world))
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, at(world), std::size_t{97}}) {
        const Buffers x = wide_range_inputs(world, count);
        const auto nodes = ranks_of_nodes(shape, world);
        std::size_t m = at(world);
        for (const auto& node : nodes) m = std::min(m, node.size());
        const int n = static_cast<int>(nodes.size());
        require_sums(hierarchical_all_reduce(world, count, shape), x, [&](int c, std::size_t i) {
          const auto l = at(c / n);
          const int j = c % n;
          float sum = node_sum(x, i, nodes[at((j + 1) % n)], l, m);
          for (int k = 2; k <= n; ++k) sum = sum + node_sum(x, i, nodes[at((j + k) % n)], l, m);
          return sum;
        });
      }
}

TEST_CASE("between nodes, hierarchical sends the least, the ring more, and two-shot m times it",
          "[schedule]") {
  for (const int n : {2, 3, 4})
    for (const int m : {2, 4, 8}) {
      const int world = n * m;
      const std::size_t count = at(world) * 12;
      const auto nodes = nodes_of(world, m);
      const std::size_t least = 2 * count * at(n - 1);
      CHECK(between_nodes(hierarchical_all_reduce(world, count, nodes), nodes) == least);
      CHECK(between_nodes(direct_schedule(Collective::all_reduce, world, count), nodes) ==
            least * at(m));
      CHECK(between_nodes(ring_all_reduce(world, count), nodes) ==
            2 * count * at(n * m - 1) / at(m));
    }
}

namespace {

// Numbers of ranks of nodes, and the number of segments of a piece.
struct Shape {
  std::vector<int> sizes;
  int segments;
};

// Nodes of consecutive ranks, or ranks dealt to nodes in turn.
std::vector<int> nodes_of_sizes(const std::vector<int>& sizes, bool mixed) {
  std::vector<int> node_of, left = sizes;
  for (int r = 0, world = std::accumulate(sizes.begin(), sizes.end(), 0), a = 0; r < world; ++r) {
    while (left[at(a)] == 0) a = wrap(a + 1, static_cast<int>(sizes.size()));
    node_of.push_back(a);
    --left[at(a)];
    if (mixed || left[at(a)] == 0) a = wrap(a + 1, static_cast<int>(sizes.size()));
  }
  return node_of;
}

std::size_t sent_to_other_nodes(const Schedule& schedule, int rank) {
  std::size_t sent = 0;
  for (const Step& step : schedule.steps[at(rank)])
    if (step.sends() && schedule.node_of[at(step.send_peer)] != schedule.node_of[at(rank)])
      sent += message_count(schedule, step.send_chunk, step.chunks);
  return sent;
}

}  // namespace

TEST_CASE("in pieces, the hierarchical sum is a ring's within nodes, then a ring's between them",
          "[schedule]") {
  for (const auto& [sizes, segments] : std::vector<Shape>{{{4}, 4},
                                                          {{1, 1}, 1},
                                                          {{2, 2}, 2},
                                                          {{3, 3}, 3},
                                                          {{4, 4}, 4},
                                                          {{2, 2, 2}, 2},
                                                          {{2, 2, 2, 2}, 2},
                                                          {{3, 2}, 4},
                                                          {{2, 2, 1}, 2},
                                                          {{4, 1}, 4},
                                                          {{1, 3}, 3},
                                                          {{3, 4, 2}, 6},
                                                          {{4, 2}, 4},
                                                          {{5, 3}, 7}})
    for (const std::size_t most : {std::size_t{1}, std::size_t{3}, std::size_t{1000}})
      for (const std::size_t count :
           {std::size_t{0}, std::size_t{1}, at(segments), std::size_t{97}})
        for (const bool mixed : {false, true}) {
          const auto node_of = nodes_of_sizes(sizes, mixed);
          const int world = static_cast<int>(node_of.size()), n = static_cast<int>(sizes.size());
          const Buffers x = wide_range_inputs(world, count);
          const auto nodes = ranks_of_nodes(node_of, world);
          const NodeShares shares = shares_of_nodes(nodes);
          REQUIRE(static_cast<int>(shares.segments.size()) == segments);
          const auto ring_of_node = [&](int a, int owner, std::size_t i) {
            const int m = static_cast<int>(nodes[at(a)].size());
            const int l =
                static_cast<int>(std::ranges::find(nodes[at(a)], owner) - nodes[at(a)].begin());
            const auto value = [&](int k) { return x[at(nodes[at(a)][at(wrap(k, m))])][i]; };
            float sum = value(l + 1);
            for (int k = 2; k <= m; ++k) sum = sum + value(l + k);
            return sum;
          };
          const Schedule schedule = hierarchical_in_pieces(world, count, node_of, most);
          require_sums(schedule, x, [&, segments = segments](int c, std::size_t i) {
            const std::vector<int>& owners = shares.segments[at(c / n % segments)].owners;
            const auto of_node = [&](int a) { return ring_of_node(a, owners[at(a)], i); };
            const int j = c % n;
            float sum = of_node(wrap(j + 1, n));
            for (int k = 2; k <= n; ++k) sum = sum + of_node(wrap(j + k, n));
            return sum;
          });
          for (Schedule form : {schedule, one_chunk_steps(schedule)}) {
            form.algorithm = Algorithm::own;  // the promised cost is for one piece
            const auto findings = check(form);
            INFO(n << " nodes of " << sizes[0] << " and " << sizes.back() << ", count " << count
                   << ", parts of " << most << ": "
                   << (findings.empty() ? "" : findings[0].describe()));
            CHECK(findings.empty());
          }
        }
}

TEST_CASE("pieces cover the buffer once, and each rank sends its part between nodes",
          "[schedule]") {
  for (const int units : {1, 2, 3, 4, 6, 8})
    for (const std::size_t most : {std::size_t{1}, std::size_t{5}, std::size_t{64}})
      for (std::size_t count = 0; count < 200; ++count) {
        std::size_t next = 0;
        for (const NodePiece& piece : node_pieces(count, units, most)) {
          REQUIRE(piece.offset == next);
          REQUIRE(piece.unit >= 1);
          REQUIRE(piece.unit <= most);
          for (int u = 0; u < units; ++u) {
            const Chunk part = piece.part_of(u, u + 1, count);
            REQUIRE(part.offset == next);
            next += part.count;
          }
        }
        REQUIRE(next == count);
      }
  for (const auto& sizes : std::vector<std::vector<int>>{{2, 2},
                                                         {4, 4},
                                                         {8, 8},
                                                         {4, 4, 4},
                                                         {2, 2, 2, 2},
                                                         {3, 2},
                                                         {4, 1},
                                                         {2, 2, 1},
                                                         {8, 7},
                                                         {3, 4, 2}})
    for (const int pieces : {1, 2, 5}) {
      const auto node_of = nodes_of_sizes(sizes, false);
      const int world = static_cast<int>(node_of.size()), n = static_cast<int>(sizes.size());
      const NodeShares shares = shares_of_nodes(ranks_of_nodes(node_of, world));
      const std::size_t unit = at(n) * NodeShares::kEvenUnit, piece = at(shares.units) * unit;
      const std::size_t count = at(pieces) * piece;
      const Schedule schedule =
          hierarchical_in_pieces(world, count, node_of, unit * at(shares.largest_part));
      CHECK(node_pieces(count, shares.units, unit).size() == at(pieces));
      CHECK(between_nodes(schedule, node_of) == 2 * count * at(n - 1));
      std::size_t by_rings = 0;
      for (const NodeSegment& segment : shares.segments)
        by_rings += between_nodes(
            ring_between_nodes(world, at(segment.end - segment.begin) * unit, node_of, segment),
            node_of);
      CHECK(between_nodes(schedule, node_of) == at(pieces) * by_rings);
      for (int rank = 0; rank < world;
           ++rank)  // its part of its node's bytes, whatever the others' sizes
        CHECK(sent_to_other_nodes(schedule, rank) ==
              2 * at(n - 1) * count / at(n) / at(sizes[at(node_of[at(rank)])]));
    }
}

TEST_CASE("units keep parts within their limit, and aligned where there are enough elements",
          "[schedule]") {
  const NodeShares uneven = shares_of_nodes({{0, 1, 2}, {3, 4}});
  CHECK(uneven.units == 6);
  CHECK(uneven.largest_part == 3);
  CHECK(uneven.longest_unit(1000) == 320);
  CHECK(uneven.longest_unit(600) == 192);
  CHECK(uneven.longest_unit(100) == 33);
  CHECK(uneven.longest_unit(1) == 1);
  const NodeShares even = shares_of_nodes({{0, 1}, {2, 3}});
  CHECK(even.longest_unit(std::size_t{1} << 18) == std::size_t{1} << 18);
}

// Two nodes of 4 GPUs, in seconds and bytes: NVLink, an adapter of 400 Gbit/s for each GPU, and
// sums on the host. The old path copies the whole message to the host, runs `direct` there, and
// copies the result back; nothing overlaps. In pieces, a message between nodes is charged for the
// addition, too, although half of them are copies. The copies of a part over PCIe are faster than
// the adapter and overlap with it, except for the first and the last.
TEST_CASE("two nodes of GPUs: pieces take less time than the whole message through the host",
          "[simulator]") {
  constexpr int kPerNode = 4, kWorld = 2 * kPerNode;
  constexpr double kPcie = 1 / 50e9, kAddition = 1 / 20e9;  // seconds per byte
  const Link nvlink{3e-6, 1 / 300e9}, adapter{5e-6, 1 / 45e9}, host{1e-6, 1 / 20e9};
  const auto node_of = nodes_of(kWorld, kPerNode);
  const auto network = [&](Link within, Link between, double gamma) {
    Network links = Network::uniform(within, gamma);
    links.link = [=](int from, int to) {
      return node_of[at(from)] == node_of[at(to)] ? within : between;
    };
    return links;
  };
  for (const std::size_t mebibytes : {1, 4, 25, 100}) {
    const std::size_t bytes = mebibytes << 20;
    const double old = 2 * static_cast<double>(bytes) * kPcie +
                       simulate(direct_schedule(Collective::all_reduce, kWorld, bytes), 1,
                                network(host, adapter, kAddition))
                           .seconds;
    const auto time = [&](std::size_t most) {
      const Link between{adapter.alpha, adapter.beta + kAddition};
      return 2 * static_cast<double>(std::min(most, bytes / kPerNode)) * kPcie +
             simulate(hierarchical_in_pieces(kWorld, bytes, node_of, most), 1,
                      network(nvlink, between, 0))
                 .seconds;
    };
    const double whole = time(bytes), pieces = time(std::size_t{1} << 20);
    WARN("simulated, " << mebibytes << " MiB: through the host " << old * 1e3
                       << " ms, hierarchical whole " << whole * 1e3 << " ms, in pieces "
                       << pieces * 1e3 << " ms");
    CHECK(pieces < old / 2);
    CHECK(pieces <= whole * 1.000001);
  }
}

TEST_CASE("larger worlds and pipelines are proved, whole and taken apart", "[checker]") {
  std::vector<Schedule> schedules;
  for (const int world : {9, 12, 16, 17, 24})
    for (const std::size_t count : {std::size_t{5}, std::size_t{200}}) {
      schedules.push_back(halving_doubling_all_reduce(world, count));
      for (const int pieces : {1, 2, 5})
        schedules.push_back(double_tree_all_reduce(world, count, pieces));
      for (const int per_node : {2, 4, 5, 8})
        schedules.push_back(hierarchical_all_reduce(world, count, nodes_of(world, per_node)));
    }
  for (const Schedule& schedule : schedules)
    for (Schedule form : {schedule, one_chunk_steps(schedule)}) {
      if (form.steps != schedule.steps)
        form.algorithm = Algorithm::own;  // no cost is promised for split steps
      std::vector<LinkModel> wires{{1, false}, {2, false}, {8, false}};
      if (schedule.algorithm != Algorithm::double_tree) wires.push_back({0, true});
      const auto findings = check(form, {wires});
      INFO(name_of(form.algorithm) << " world " << form.world << " count " << form.count);
      INFO((findings.empty() ? "" : findings[0].describe()));
      CHECK(findings.empty());
    }
}

TEST_CASE("every built-in schedule stays proved when its messages are taken apart", "[checker]") {
  for_each_built_in([](const Schedule& schedule) {
    Schedule flat = one_chunk_steps(schedule);
    for (const auto& steps : flat.steps)
      for (const Step& step : steps) REQUIRE(step.chunks == 1);
    flat.algorithm = Algorithm::own;
    REQUIRE(check(flat).empty());
  });
}

TEST_CASE("a message of several chunks that do not fit is found", "[checker]") {
  Schedule schedule = halving_doubling_all_reduce(4, 16);
  schedule.steps[1][0].chunks = 1;
  CHECK(check(schedule)[0].fault == Fault::size_mismatch);
  schedule = halving_doubling_all_reduce(4, 16);
  schedule.steps[1][0].send_chunk = 3;
  CHECK(check(schedule)[0].fault == Fault::shape);
  schedule = halving_doubling_all_reduce(4, 16);
  schedule.steps[1][0].chunks = 0;
  CHECK(check(schedule)[0].fault == Fault::shape);
  CHECK_THROWS_AS(hierarchical_all_reduce(4, 8, {0, 1}), ringsmith::UsageError);
  CHECK_THROWS_AS(nodes_of(4, 0), ringsmith::UsageError);
}

TEST_CASE("halving and doubling takes as long as its rounds, and its bytes, say", "[simulator]") {
  const Link link{5e-6, 1e-9};
  for (const int p : {2, 4, 8, 16, 64}) {
    const double bytes = 4096.0 * p, rounds = std::log2(p);
    const double time =
        simulate(halving_doubling_all_reduce(p, 4096 * at(p)), 1, Network::uniform(link)).seconds;
    CHECK(time == Approx(2 * (rounds * link.alpha + bytes * (p - 1) / p * link.beta)));
  }
}

TEST_CASE("the double tree is a pipeline: more ranks cost levels, not whole buffers",
          "[simulator]") {
  const Link link{1e-6, 1e-9};
  const std::size_t bytes = std::size_t{16} << 20;
  const auto time = [&](int world) {
    return simulate(double_tree_all_reduce(world, bytes), 1, Network::uniform(link)).seconds;
  };
  const double whole = static_cast<double>(bytes) * link.beta;
  // Each port carries the buffer twice; each level adds two pieces of 1 / 32 of it on the way up
  // and two on the way down.
  for (const int world : {4, 16, 64, 256}) {
    const double levels = std::log2(world);
    INFO(world << " ranks: " << time(world) / whole << " times the buffer");
    CHECK(time(world) < whole * (2.1 + 4 * (levels + 1) / 32));
  }
}
