#include "runtime/analysis/cost.hpp"
#include "runtime/comm/schedule/schedule.hpp"
#include "runtime/comm/schedule/select.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::comm;

namespace {

CostModel machine(double alpha, double beta) {
  CostModel model;
  model.alpha = alpha;
  model.beta = Rate(beta);
  model.gamma = Rate(beta / 10);
  return model;
}

double price(const CostModel& model, Algorithm algorithm, int world, double bytes,
             const std::vector<int>& nodes) {
  return predicted_time(model, make_schedule(Collective::all_reduce, algorithm, world,
                                             static_cast<std::size_t>(bytes), 1, 0, nodes));
}

}  // namespace

TEST_CASE("no candidate is cheaper than the choice, at any size that was tried", "[choose]") {
  CostModel two_kinds = machine(1e-6, 1e-10);
  two_kinds.wire = CostModel::Wire{50e-6, Rate(1e-8)};
  for (const CostModel& model : {machine(1e-6, 1e-9), machine(1e-4, 1e-10), two_kinds})
    for (const int world : {1, 2, 3, 8, 12})
      for (const int per_node : {1, 2, 4, world}) {
        const auto nodes = nodes_of(world, per_node);
        const auto choices = fastest_by_size(model, world, nodes);
        REQUIRE(!choices.empty());
        for (std::size_t i = 1; i < choices.size(); ++i) {
          CHECK(choices[i].up_to > choices[i - 1].up_to);
          CHECK(choices[i].algorithm != choices[i - 1].algorithm);
        }
        for (double bytes = 256; bytes <= 0x1p28; bytes *= 16) {
          const double best =
              price(model, choice_for(choices, bytes).algorithm, world, bytes, nodes);
          for (const Algorithm other : choosable_algorithms())
            CHECK(best <= price(model, other, world, bytes, nodes));
        }
      }
}

TEST_CASE("small messages go by few steps, large ones by few bytes, and between nodes by few there",
          "[choose]") {
  const auto uniform = fastest_by_size(machine(100e-6, 1e-9), 12, {});
  CHECK(uniform.size() >= 2);
  // Ring and direct cost the same except for rounding.
  const Algorithm large = choice_for(uniform, 1e9).algorithm;
  CHECK((large == Algorithm::ring || large == Algorithm::direct));
  CHECK(choice_for(uniform, 1).algorithm != Algorithm::ring);
  CHECK(choice_for(uniform, 1).algorithm != Algorithm::direct);
  CostModel model = machine(1e-6, 1e-11);
  model.wire = CostModel::Wire{20e-6, Rate(1e-8)};
  CHECK(choice_for(fastest_by_size(model, 8, nodes_of(8, 4)), 1e9).algorithm ==
        Algorithm::hierarchical);
}

TEST_CASE("ranks of a node share its wire, and only a model with wires knows nodes", "[choose]") {
  CostModel model = machine(1e-6, 1e-11);
  const auto nodes = nodes_of(4, 2);
  CHECK(model.network(1e6, nodes, 2).link(1, 2).beta == 1e-11);
  model.wire = CostModel::Wire{20e-6, Rate(1e-8)};
  CHECK(model.network(1e6, nodes, 2).link(1, 2).beta == 2e-8);
  CHECK(model.network(1e6, nodes, 1).link(1, 2).alpha == 20e-6);
  CHECK(model.network(1e6, nodes, 2).link(0, 1).beta == 1e-11);
}

TEST_CASE("the shape of a schedule is the textbook's", "[choose]") {
  const CostShape ring =
      shape_of(make_schedule(Collective::all_reduce, Algorithm::ring, 4, 4000, 1));
  CHECK(ring.steps == Approx(6));
  CHECK(ring.moved == Approx(6000));
  CHECK(ring.reduced == Approx(3000));
}
