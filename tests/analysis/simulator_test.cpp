#include "runtime/analysis/simulator.hpp"

#include <ctime>
#include <random>

#include "runtime/analysis/cost.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/ring.hpp"
#include "runtime/comm/schedule/select.hpp"
#include "runtime/comm/schedule/tree.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::comm;

namespace {

constexpr Link kLink{1e-6, 1e-9};
constexpr double kGamma = 0.25e-9;
// Debug and instrumented builds are many times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
constexpr int kWorld = 1024;
#else
constexpr int kWorld = 16384;
#endif

// A network in which the seed determines the speed of each pair's link.
Network uneven_network(unsigned seed, int slots) {
  Network network;
  network.link = [seed](int from, int to) {
    std::mt19937 engine(seed * 7919u + static_cast<unsigned>(from) * 131u +
                        static_cast<unsigned>(to));
    std::uniform_real_distribution<double> factor(0.1, 3.0);
    return Link{1e-6 * factor(engine), 1e-9 * factor(engine)};
  };
  network.gamma = 0.3e-9;
  network.overhead = 2e-6;
  network.slots = slots;
  return network;
}

}  // namespace

TEST_CASE("uniform rings and trees take the textbook time", "[simulator]") {
  const Network network = Network::uniform(kLink, kGamma);
  for (const int world : {1, 2, 3, 4, 5, 7, 8, 16, 31}) {
    const std::size_t count = static_cast<std::size_t>(world) * 1000;
    const double bytes = static_cast<double>(count) * 4;
    const auto near = [](double t) { return Approx(t).epsilon(1e-12); };
    CHECK(simulate(ring_all_reduce(world, count), 4, network).seconds ==
          near(ring_all_reduce_time(world, bytes, kLink, kGamma)));
    CHECK(simulate(ring_reduce_scatter(world, count), 4, network).seconds ==
          near(ring_half_time(world, bytes, kLink, kGamma)));
    CHECK(simulate(ring_all_gather(world, count), 4, network).seconds ==
          near(ring_half_time(world, bytes, kLink, 0)));
    if ((world & (world - 1)) == 0) {  // full trees
      CHECK(simulate(tree_broadcast(world, count, 0), 4, network).seconds ==
            near(tree_time(world, bytes, kLink, 0)));
      CHECK(simulate(tree_reduce(world, count, world / 2), 4, network).seconds ==
            near(tree_time(world, bytes, kLink, kGamma)));
    }
  }
}

TEST_CASE("the ring's array sweep equals the general simulation, bit for bit", "[simulator]") {
  for (int world = 1; world <= 9; ++world)
    for (const int slots : {1, 2, 8})
      for (std::size_t count = 0; count <= 3 * static_cast<std::size_t>(world) + 1; ++count) {
        const Network network = uneven_network(static_cast<unsigned>(world), slots);
        const std::size_t n = count * (count % 2 == 0 ? 1 : 1013);
        const Simulation slow = simulate(ring_all_reduce(world, n), 4, network);
        const Simulation fast = simulate_ring_all_reduce(world, n, 4, network);
        REQUIRE(slow.seconds == fast.seconds);
        REQUIRE(slow.finished == fast.finished);
        REQUIRE(slow.messages == fast.messages);
        REQUIRE(slow.bytes == fast.bytes);
      }
}

TEST_CASE("one slow link slows a ring down by its own time, and a slot less by its latency",
          "[simulator]") {
  const auto ring = ring_all_reduce(4, 4000);
  Network network = Network::uniform(kLink, 0);
  const double even = simulate(ring, 4, network).seconds;
  network.link = [](int from, int) {
    return from == 2 ? Link{kLink.alpha, 10 * kLink.beta} : kLink;
  };
  CHECK(simulate(ring, 4, network).seconds >= 6 * 4000 * 10 * kLink.beta);
  CHECK(simulate(ring, 4, network).seconds > 3 * even);
  network = Network::uniform(kLink, 0);
  network.slots = 1;
  CHECK(simulate(ring, 4, network).seconds >= even);
  network.slots = 0;
  CHECK_THROWS_AS(simulate(ring, 4, network), ringsmith::UsageError);
}

TEST_CASE("events tell when each message was posted, arrived and was reduced", "[simulator]") {
  const auto simulation =
      simulate(ring_all_reduce(2, 2000), 4, Network::uniform(kLink, kGamma), true);
  REQUIRE(simulation.events.size() == 4);
  const StepEvents& first = simulation.events[0];
  CHECK(first.posted == 0);
  CHECK(first.arrived == Approx(1e-6 + 4000e-9));
  CHECK(first.finished == Approx(1e-6 + 4000e-9 + 1000e-9));
  CHECK(simulation.events[1].posted == first.finished);
}

TEST_CASE("every built-in schedule can be priced", "[simulator]") {
  for (const Collective collective : all_collectives())
    for (const Algorithm algorithm : algorithms_of(collective))
      for (const int world : {1, 2, 5, 8}) {
        const auto schedule = make_schedule(collective, algorithm, world, 840);
        const double seconds = simulate(schedule, 4, Network::uniform(kLink, kGamma)).seconds;
        CHECK((world == 1 ? seconds == 0 : seconds >= kLink.alpha));
      }
}

TEST_CASE("a rate is its points, straight between them, flat beyond", "[cost]") {
  const Rate rate({{1024, 1.0}, {1024 * 1024, 3.0}});
  CHECK(rate.at(1) == 1.0);
  CHECK(rate.at(1024) == 1.0);
  CHECK(rate.at(32 * 1024) == Approx(2.0));
  CHECK(rate.at(1e12) == 3.0);
  CHECK_THROWS_AS(Rate(std::vector<Rate::Point>{}), ringsmith::UsageError);
  CHECK_THROWS_AS(Rate({{2, 1.0}, {1, 1.0}}), ringsmith::UsageError);
}

TEST_CASE("16,384 ranks of a ring are simulated in seconds", "[simulator][large]") {
  const std::clock_t begin = std::clock();  // CPU time, because other processes may use the machine
  const int world = kWorld;
  const std::size_t count = static_cast<std::size_t>(world) * 1024;
  const auto result = simulate_ring_all_reduce(world, count, 4, Network::uniform(kLink, kGamma));
  const double took = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  CHECK(result.seconds ==
        Approx(ring_all_reduce_time(world, static_cast<double>(count) * 4, kLink, kGamma))
            .epsilon(1e-9));
  CHECK(result.messages == std::uint64_t{kWorld} * (2 * kWorld - 2));
  CHECK(took < 10);
}
