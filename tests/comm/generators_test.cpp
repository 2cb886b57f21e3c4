// Every sum must equal its documented expression bit for bit. Another order would give other bits.
#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/direct.hpp"
#include "runtime/comm/schedule/ring.hpp"
#include "runtime/comm/schedule/select.hpp"
#include "runtime/comm/schedule/tree.hpp"
#include "tests/comm/reference_executor.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::comm;
using namespace ringsmith::comm::testing;

namespace {

// Returns x[first] + x[first + direction] + ... over all ranks, added from left to right.
float walk(const Buffers& x, std::size_t i, int first, int direction) {
  const int world = static_cast<int>(x.size());
  float sum = x[at(wrap(first, world))][i];
  for (int k = 1; k < world; ++k) sum = sum + x[at(wrap(first + direction * k, world))][i];
  return sum;
}

// Adds neighbours, then neighbouring pairs, etc.: y[lo..lo+width), where y is numbered from root.
float pairwise(const Buffers& x, std::size_t i, int root, int lo, int width) {
  const int world = static_cast<int>(x.size());
  if (width == 1) return x[at(wrap(root + lo, world))][i];
  const float left = pairwise(x, i, root, lo, width / 2);
  if (lo + width / 2 >= world) return left;
  return left + pairwise(x, i, root, lo + width / 2, width / 2);
}

bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

template <class Expected>
void require_sums(const Schedule& schedule, const Buffers& inputs, Expected expected) {
  const Buffers result = execute(schedule, inputs);
  for (int rank = 0; rank < schedule.world; ++rank)
    for (std::size_t c = 0; c < schedule.chunks.size(); ++c) {
      if (schedule.collective == Collective::reduce_scatter && c != at(rank)) continue;
      if (schedule.collective == Collective::reduce && rank != schedule.root) continue;
      const Chunk& chunk = schedule.chunks[c];
      for (std::size_t i = chunk.offset; i < chunk.offset + chunk.count; ++i)
        if (!same_bits(result[at(rank)][i], expected(static_cast<int>(c), i)))
          FAIL(name_of(schedule.algorithm)
               << " world " << schedule.world << " count " << schedule.count << " rank " << rank
               << " chunk " << c << " element " << i);
    }
}

}  // namespace

TEST_CASE("each algorithm adds in its documented order, bit for bit", "[schedule]") {
  for (int world = 1; world <= 8; ++world)
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, at(world - 1), at(world),
                                    at(world + 1), std::size_t{97}}) {
      const Buffers x = wide_range_inputs(world, count);
      const auto ring = [&](int c, std::size_t i) { return walk(x, i, c + 1, +1); };
      require_sums(ring_all_reduce(world, count), x, ring);
      require_sums(ring_reduce_scatter(world, count), x, ring);
      require_sums(gloo_ring_all_reduce(world, count, 4), x,
                   [&](int c, std::size_t i) { return walk(x, i, c - 1, -1); });
      const auto owner_up = [&](int c, std::size_t i) { return walk(x, i, c, +1); };
      require_sums(direct_schedule(Collective::all_reduce, world, count), x, owner_up);
      require_sums(direct_schedule(Collective::reduce_scatter, world, count), x, owner_up);
      require_sums(one_shot_all_reduce(world, count), x,
                   [&](int, std::size_t i) { return walk(x, i, 0, +1); });
      require_sums(tree_all_reduce(world, count), x,
                   [&](int, std::size_t i) { return pairwise(x, i, 0, 0, 8); });
      for (int root = 0; root < world; ++root) {
        require_sums(tree_reduce(world, count, root), x,
                     [&](int, std::size_t i) { return pairwise(x, i, root, 0, 8); });
        require_sums(direct_schedule(Collective::reduce, world, count, root), x,
                     [&](int, std::size_t i) { return walk(x, i, root, +1); });
      }
    }
}

TEST_CASE("data movement ends where the collective promises it", "[schedule]") {
  for (int world = 1; world <= 8; ++world)
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, at(world), at(3 * world + 1)}) {
      const Buffers x = wide_range_inputs(world, count);
      const auto chunks = split_evenly(count, world);
      const auto chunk_of = [&](std::size_t i) {
        int c = 0;
        while (i >= chunks[at(c)].offset + chunks[at(c)].count) ++c;
        return c;
      };
      for (const Algorithm algorithm : {Algorithm::ring, Algorithm::direct}) {
        const Buffers got =
            execute(make_schedule(Collective::all_gather, algorithm, world, count), x);
        for (int rank = 0; rank < world; ++rank)
          for (std::size_t i = 0; i < count; ++i)
            REQUIRE(same_bits(got[at(rank)][i], x[at(chunk_of(i))][i]));
      }
      for (int root = 0; root < world; ++root) {
        for (const Algorithm algorithm : {Algorithm::tree, Algorithm::direct}) {
          const Buffers got =
              execute(make_schedule(Collective::broadcast, algorithm, world, count, 4, root), x);
          for (int rank = 0; rank < world; ++rank) REQUIRE(got[at(rank)] == x[at(root)]);
        }
        const Buffers gathered =
            execute(direct_schedule(Collective::gather, world, count, root), x);
        const Buffers scattered =
            execute(direct_schedule(Collective::scatter, world, count, root), x);
        for (std::size_t i = 0; i < count; ++i) {
          REQUIRE(same_bits(gathered[at(root)][i], x[at(chunk_of(i))][i]));
          REQUIRE(same_bits(scattered[at(chunk_of(i))][i], x[at(root)][i]));
        }
      }
    }
}

TEST_CASE("all_to_all transposes the matrix of chunks", "[schedule]") {
  for (int world = 1; world <= 8; ++world) {
    const std::size_t each = 3, count = each * at(world);
    const Buffers x = wide_range_inputs(world, count);
    const Buffers got = execute(direct_schedule(Collective::all_to_all, world, count), x);
    for (int rank = 0; rank < world; ++rank)
      for (int peer = 0; peer < world; ++peer)
        for (std::size_t i = 0; i < each; ++i)
          REQUIRE(same_bits(got[at(rank)][at(peer) * each + i], x[at(peer)][at(rank) * each + i]));
  }
}

TEST_CASE("all_to_all may run in place: no part is overwritten before it was sent", "[schedule]") {
  for (int world = 1; world <= 8; ++world) {
    const std::size_t count = 2 * at(world);
    const Buffers x = wide_range_inputs(world, count);
    Schedule schedule = direct_schedule(Collective::all_to_all, world, count);
    const Buffers separate = execute(schedule, x);
    schedule.separate_input = false;
    for (int rank = 0; rank < world; ++rank)
      for (Step& step : schedule.steps[at(rank)])
        if (step.recv_peer == rank) step.recv_peer = kNobody;  // the data is already in its place
    REQUIRE(execute(schedule, x) == separate);
  }
}

TEST_CASE("gloo's chunks follow its byte arithmetic", "[schedule]") {
  // 10 floats on 4 ranks make 8 segments of 5 bytes, rounded up to 8 bytes. A chunk has two
  // segments.
  REQUIRE(gloo_chunks(4, 10, 4) == std::vector<Chunk>{{0, 4}, {4, 4}, {8, 2}, {10, 0}});
  // 10 MiB + 4 bytes on 3 ranks make 11 segments, rounded up to 12 segments.
  const std::size_t count = (10 << 20) / 4 + 1, segment = (count * 4 + 11) / 12 / 4 + 1;
  const auto chunks = gloo_chunks(3, count, 4);
  REQUIRE(chunks[0] == Chunk{0, 4 * segment});
  REQUIRE(chunks[2].offset + chunks[2].count == count);
}

TEST_CASE("a request that no schedule serves names the choices", "[schedule]") {
  using ringsmith::UsageError;
  REQUIRE_THROWS_WITH(parse_algorithm(Collective::all_reduce, "rnig"),
                      ContainsSubstring("'rnig'") && ContainsSubstring("gloo_ring"));
  REQUIRE_THROWS_WITH(make_schedule(Collective::broadcast, Algorithm::ring, 4, 8),
                      ContainsSubstring("'ring' for broadcast: choose one of direct, tree"));
  REQUIRE_THROWS_AS(make_schedule(Collective::all_reduce, Algorithm::automatic, 4, 8), UsageError);
  for (const Collective collective : all_collectives())
    for (const Algorithm algorithm : algorithms_of(collective))
      CHECK(parse_algorithm(collective, name_of(algorithm)) == algorithm);
  REQUIRE_THROWS_WITH(make_schedule(Collective::broadcast, Algorithm::tree, 4, 8, 4, 4),
                      ContainsSubstring("root 4"));
  REQUIRE_THROWS_AS(make_schedule(Collective::all_reduce, Algorithm::ring, 0, 8), UsageError);
  REQUIRE_THROWS_AS(make_schedule(Collective::all_to_all, Algorithm::direct, 4, 7), UsageError);
  REQUIRE_THROWS_AS(parse_collective("allreduce"), UsageError);
}
