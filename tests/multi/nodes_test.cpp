// Compares the bytes between nodes, as the wires count them, with the schedule's promise. The
// hierarchical schedule must send fewer than ring and direct, and none if all ranks share one node.
#include <algorithm>

#include "runtime/comm/schedule/schedule.hpp"
#include "runtime/comm/schedule/select.hpp"
#include "tests/multi/data.hpp"
#include "tests/multi/group.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

constexpr std::size_t kCount = 1'000'003;  // floats: 4 MB

// Collective. Returns the bytes between nodes of one all_reduce, summed over all ranks.
double bytes_between_nodes(Algorithm algorithm) {
  ProcessGroup& g = group();
  g.set_algorithm(algorithm);
  std::vector<float> x(kCount, 1.0F);
  g.barrier();
  const Bytes before = g.sent_between_nodes();
  g.all_reduce(std::span(x));
  auto bytes = static_cast<double>((g.sent_between_nodes() - before).value);
  g.set_algorithm(Algorithm::automatic);
  g.all_reduce(std::span(&bytes, 1));
  return bytes;
}

double planned(Algorithm algorithm, const std::vector<int>& node_of) {
  const auto schedule = make_schedule(Collective::all_reduce, algorithm, group().size(), kCount,
                                      sizeof(float), 0, node_of);
  std::size_t elements = 0;
  for (std::size_t rank = 0; rank < schedule.steps.size(); ++rank)
    for (const Step& step : schedule.steps[rank])
      if (step.sends() && node_of[rank] != node_of[static_cast<std::size_t>(step.send_peer)])
        elements += message_count(schedule, step.send_chunk, step.chunks);
  return static_cast<double>(elements * sizeof(float));
}

}  // namespace

TEST_CASE("between nodes travels what the schedule says: hierarchical the least",
          "[multi][comm][nodes]") {
  const std::vector<int> node_of = group().node_of();
  REQUIRE(node_of.size() == static_cast<std::size_t>(group().size()));
  const auto nodes = ranks_of_nodes(node_of, group().size());
  const auto n = static_cast<double>(nodes.size());
  const double bytes = kCount * sizeof(float);
  double least = 0, ring = 0, direct = 0;
  for (const auto algorithm :
       {Algorithm::hierarchical, Algorithm::ring, Algorithm::direct, Algorithm::tree,
        Algorithm::halving_doubling, Algorithm::double_tree}) {
    const double sent = bytes_between_nodes(algorithm), promised = planned(algorithm, node_of);
    INFO(name_of(algorithm) << ": " << sent << " bytes, planned " << promised);
    CHECK(sent >= promised);
    CHECK(sent <=
          promised * 1.02 + (nodes.size() > 1 ? 50'000 : 0));  // counters, agreement barriers
    if (algorithm == Algorithm::hierarchical) least = sent;
    if (algorithm == Algorithm::ring) ring = sent;
    if (algorithm == Algorithm::direct) direct = sent;
  }
  CHECK(least >= 2 * bytes * (n - 1));
  const bool equal = std::all_of(nodes.begin(), nodes.end(),
                                 [&](const auto& node) { return node.size() == nodes[0].size(); });
  if (nodes.size() < 2 || !equal) return;
  const auto m = static_cast<double>(nodes[0].size());
  CHECK(direct / least == Approx(m).epsilon(0.02));
  if (std::is_sorted(node_of.begin(), node_of.end()))
    CHECK(ring / least == Approx((n * m - 1) / (m * (n - 1))).epsilon(0.02));
  if (group().rank() == 0)
    WARN("between " << n << " nodes of " << m << " ranks, in MB for " << bytes / 1e6
                    << " MB: hierarchical " << least / 1e6 << ", ring " << ring / 1e6 << ", direct "
                    << direct / 1e6);
}
