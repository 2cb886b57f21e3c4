// Tests all_reduce bit for bit over every dtype, reduction, algorithm, kind of memory and odd
// count.
#include <limits>

#include "tests/multi/data.hpp"
#include "tests/multi/group.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

struct Shape {
  std::size_t count;
  std::size_t offset;  // bytes
  bool own, in_place;
};

// Returns the number of wrong elements. A rank with wrong results must still take part in the next
// call, so these tests CHECK and never REQUIRE.
template <class T>
std::size_t try_all_reduce(ReduceOp op, const Shape& shape, unsigned seed) {
  ProcessGroup& g = group();
  const auto inputs = repeated<T>(shape.count, g.size(), [&](std::size_t i) {
    return contribution<T>(op, g.size(), g.rank(), i, seed);
  });
  const auto answers = repeated<T>(
      shape.count, g.size(), [&](std::size_t i) { return expected<T>(op, g.size(), i, seed); });
  const auto mine = [&](std::size_t i) { return inputs[i]; };
  const auto answer = [&](std::size_t i) { return answers[i]; };
  Guarded<T> input(g, shape.own, shape.count, shape.offset);
  input.fill(mine);
  if (shape.in_place) {
    g.all_reduce(input.buffer(), op);
    return input.wrong(answer);
  }
  Guarded<T> output(g, shape.own, shape.count, shape.offset);
  g.all_reduce(input.buffer(), output.buffer(), op);
  return output.wrong(answer) + input.wrong(mine);
}

// Runs in place at an aligned address, and out of place at an unaligned one.
template <class T>
void sweep(const std::vector<Algorithm>& algorithms, const std::vector<std::size_t>& counts) {
  unsigned seed = 0;
  for (const auto algorithm : algorithms) {
    group().set_algorithm(algorithm);
    for (const auto op :
         {ReduceOp::sum, ReduceOp::avg, ReduceOp::prod, ReduceOp::min, ReduceOp::max}) {
      if (op == ReduceOp::avg && std::is_integral_v<T>) continue;
      for (const std::size_t count : counts)
        for (const bool own : {false, true})
          for (const bool in_place : {false, true}) {
            const std::size_t offset = in_place ? 0 : 1;
            INFO(name_of(algorithm) << " " << name_of(op) << " of " << count << " at byte "
                                    << offset << (own ? ", own memory" : ", user memory")
                                    << (in_place ? ", in place" : ", out of place"));
            CHECK(try_all_reduce<T>(op, {count, offset, own, in_place}, ++seed) == 0);
          }
    }
  }
  group().set_algorithm(Algorithm::automatic);
}

}  // namespace

TEMPLATE_TEST_CASE("all_reduce is exact for every reduction, algorithm, memory and small count",
                   "[multi][comm][across]", float, f16, bf16, double, std::int32_t, std::int64_t,
                   std::uint8_t) {
  const auto world = static_cast<std::size_t>(group().size());
  const std::vector<std::size_t> counts{0, 1, world - 1, world, world + 1, 1031};
  sweep<TestType>({Algorithm::automatic, Algorithm::ring, Algorithm::gloo_ring, Algorithm::direct,
                   Algorithm::tree},
                  counts);
  // On devices one engine runs all of these, so one type is enough.
  if (group().device().is_cpu() || std::is_same_v<TestType, float>)
    sweep<TestType>({Algorithm::plain_ring, Algorithm::halving_doubling, Algorithm::double_tree,
                     Algorithm::hierarchical},
                    counts);
}

TEMPLATE_TEST_CASE("all_reduce is exact around one slot, one staging area and 2^k", "[multi][comm]",
                   float, bf16) {
  sweep<TestType>({Algorithm::automatic, Algorithm::ring, Algorithm::plain_ring},
                  {4095, 4097, 65537, 131071});
}

TEST_CASE("all_reduce of a million and three elements is exact", "[multi][comm]") {
  for (const bool own : {false, true})
    for (const auto algorithm : {Algorithm::automatic, Algorithm::ring, Algorithm::plain_ring,
                                 Algorithm::gloo_ring, Algorithm::tree, Algorithm::halving_doubling,
                                 Algorithm::double_tree, Algorithm::hierarchical}) {
      group().set_algorithm(algorithm);
      INFO(name_of(algorithm) << (own ? ", own memory" : ", user memory"));
      CHECK(try_all_reduce<float>(ReduceOp::sum, {1000003, 0, own, true}, 5) == 0);
      CHECK(try_all_reduce<double>(ReduceOp::max, {1000003, 8, own, false}, 6) == 0);
    }
  group().set_algorithm(Algorithm::automatic);
}

TEST_CASE("200 calls without a barrier between them do not disturb each other", "[multi][comm]") {
  ProcessGroup& g = group();
  constexpr std::size_t kCounts[] = {3, 1000, 3000, 20011, 5, 40009};
  for (const bool own : {false, true}) {
    std::vector<Guarded<float>> buffers;
    for (unsigned call = 0; call < 200; ++call) {
      buffers.emplace_back(g, own, kCounts[call % 6]);
      buffers.back().fill([&](std::size_t i) {
        return contribution<float>(ReduceOp::sum, g.size(), g.rank(), i, call);
      });
    }
    for (auto& b : buffers) g.all_reduce(b.buffer());
    for (unsigned call = 0; call < 200; ++call) {
      INFO("call " << call);
      CHECK(buffers[call].wrong([&](std::size_t i) {
        return expected<float>(ReduceOp::sum, g.size(), i, call);
      }) == 0);
    }
  }
}

TEST_CASE("NaN from any one rank reaches every rank through every reduction", "[multi][comm]") {
  ProcessGroup& g = group();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::size_t count : {5, 5000})
    for (const auto op :
         {ReduceOp::sum, ReduceOp::avg, ReduceOp::prod, ReduceOp::min, ReduceOp::max})
      for (int source = 0; source < g.size(); ++source) {
        std::vector<float> x(count, 1.0F);
        if (g.rank() == source) x[count / 2] = nan;
        g.all_reduce(std::span(x), op);
        CHECK(x[count / 2] != x[count / 2]);
        CHECK(x[0] == x[0]);
      }
}
