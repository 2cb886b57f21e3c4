#include "runtime/analysis/cost.hpp"
#include "runtime/analysis/simulator.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/schedule.hpp"
#include "runtime/comm/schedule/select.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::comm;

namespace {

Topology cluster(int gpus, int nics) {
  Topology t;
  t.name = "test";
  t.nodes = 4096;
  t.gpus_per_node = gpus;
  t.nics_per_node = nics;
  t.gpu = {2e-6, 1e-11};
  t.nic = {5e-6, 2e-10};
  t.gamma = 1e-12;
  t.overhead = 3e-6;
  return t;
}

double step_by_step(const Topology& t, Algorithm algorithm, int world, std::size_t bytes) {
  const auto node_of = t.node_of(world);
  const auto schedule =
      make_schedule(Collective::all_reduce, algorithm, world, bytes, 1, 0, node_of);
  return simulate(schedule, 1, t.network(senders_per_node(schedule, node_of))).seconds;
}

}  // namespace

TEST_CASE("links within a node are the GPUs', between nodes the NICs', and these are shared",
          "[topology]") {
  const Topology t = cluster(4, 2);
  const Network one = t.network(1), all = t.network(4);
  CHECK(one.link(0, 3).beta == t.gpu.beta);
  CHECK(one.link(3, 4).beta == t.nic.beta);
  CHECK(one.link(3, 4).alpha == t.nic.alpha);
  CHECK(all.link(3, 4).beta == 2 * t.nic.beta);
  CHECK(all.link(4, 7).beta == t.gpu.beta);
  const auto node_of = t.node_of(8);
  const auto senders = [&](Algorithm algorithm) {
    return senders_per_node(make_schedule(Collective::all_reduce, algorithm, 8, 64, 1, 0, node_of),
                            node_of);
  };
  CHECK(senders(Algorithm::ring) == 1);
  CHECK(senders(Algorithm::hierarchical) == 4);
  CHECK(senders(Algorithm::direct) == 4);
  CHECK(senders_per_node(make_schedule(Collective::all_reduce, Algorithm::ring, 4, 64),
                         t.node_of(4)) == 0);
}

TEST_CASE("the shortcuts take as long as all steps", "[topology]") {
  for (const int gpus : {1, 2, 4})
    for (const int nics : {1, 4})
      for (const int world : {2, 4, 8, 16}) {
        const Topology t = cluster(gpus, nics);
        const auto bytes = static_cast<std::size_t>(world) * 10'000;
        INFO(gpus << " GPUs and " << nics << " NICs a node, world " << world);
        CHECK(all_reduce_time(t, Algorithm::ring, world, static_cast<double>(bytes)) ==
              step_by_step(t, Algorithm::ring, world, bytes));
        CHECK(all_reduce_time(t, Algorithm::hierarchical, world, static_cast<double>(bytes)) ==
              Approx(step_by_step(t, Algorithm::hierarchical, world, bytes)).epsilon(1e-9));
      }
}

TEST_CASE("on slow wires hierarchical beats the ring by what it leaves at home", "[topology]") {
  const Topology t = cluster(8, 1);
  const double bytes = 1e8;
  const double ring = all_reduce_time(t, Algorithm::ring, 16, bytes);
  const double hierarchical = all_reduce_time(t, Algorithm::hierarchical, 16, bytes);
  // Each node sends 2 (16 - 1) / 16 of the bytes with the ring, and 2 * 8 * 1 / 16 with
  // hierarchical, all through its one NIC.
  CHECK(ring / hierarchical > 1.4);
  CHECK(ring / hierarchical < 15.0 / 8);
  const Topology rich = cluster(8, 8);
  CHECK(all_reduce_time(rich, Algorithm::ring, 16, bytes) == ring);
  CHECK(ring / all_reduce_time(rich, Algorithm::hierarchical, 16, bytes) > 6);
}

TEST_CASE("a world of one needs no time, and one that does not fit is refused", "[topology]") {
  Topology t = cluster(4, 1);
  CHECK(all_reduce_time(t, Algorithm::ring, 1, 1e6) == 0);
  t.nodes = 2;
  CHECK_THROWS_AS(all_reduce_time(t, Algorithm::ring, 9, 1e6), ringsmith::UsageError);
  CHECK_THROWS_AS(all_reduce_time(t, Algorithm::own, 8, 1e6), ringsmith::UsageError);
}

TEST_CASE("thousands of ranks: the tree's time grows with their logarithm, the ring's with them",
          "[topology]") {
  const Topology t = cluster(8, 8);
  const double small = 64e3;
  const double ring = all_reduce_time(t, Algorithm::ring, 4096, small) /
                      all_reduce_time(t, Algorithm::ring, 512, small);
  const double tree = all_reduce_time(t, Algorithm::double_tree, 4096, small) /
                      all_reduce_time(t, Algorithm::double_tree, 512, small);
  CHECK(ring > 6);
  CHECK(tree < 2);
}
