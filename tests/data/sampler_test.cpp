#include "runtime/data/sampler.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "runtime/base/error.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using Indices = std::vector<std::int64_t>;

namespace {

Indices of_rank(std::int64_t n, int replicas, int rank, bool shuffle, bool drop_last,
                std::uint64_t seed = 0, std::int64_t epoch = 0) {
  DistributedSampler sampler(n, {replicas, rank, shuffle, seed, drop_last});
  sampler.set_epoch(epoch);
  Indices indices = sampler.indices();
  REQUIRE(std::ssize(indices) == sampler.size());
  return indices;
}

}  // namespace

TEST_CASE("DistributedSampler deals, pads and cuts as PyTorch's") {
  CHECK(of_rank(10, 3, 0, false, false) == Indices{0, 3, 6, 9});
  CHECK(of_rank(10, 3, 1, false, false) == Indices{1, 4, 7, 0});
  CHECK(of_rank(10, 3, 2, false, false) == Indices{2, 5, 8, 1});
  CHECK(of_rank(10, 3, 0, false, true) == Indices{0, 3, 6});
  CHECK(of_rank(10, 3, 2, false, true) == Indices{2, 5, 8});
  for (int rank = 0; rank < 5; ++rank)
    CHECK(of_rank(2, 5, rank, false, false) == Indices{rank % 2});
  for (int rank = 0; rank < 4; ++rank) CHECK(of_rank(3, 4, rank, true, true).empty());
  CHECK(of_rank(0, 2, 1, true, false).empty());
  // randperm(10) with seed 0: 4 1 7 5 3 9 0 8 6 2
  CHECK(of_rank(10, 3, 0, true, false) == Indices{4, 5, 0, 2});
  CHECK(of_rank(10, 3, 1, true, false) == Indices{1, 3, 8, 4});
  CHECK(of_rank(10, 3, 2, true, false) == Indices{7, 9, 6, 1});
}

TEST_CASE("every rank has the same count, and together they see every sample") {
  for (int world : {1, 2, 3, 4, 5, 7, 8})
    for (std::int64_t n : {1, 2, 3, 7, 8, 9, 31, 64, 65, 1009}) {
      Indices seen;
      for (int rank = 0; rank < world; ++rank) {
        const Indices mine = of_rank(n, world, rank, true, false, 5, 2);
        REQUIRE(std::ssize(mine) == (n + world - 1) / world);
        seen.insert(seen.end(), mine.begin(), mine.end());
      }
      std::sort(seen.begin(), seen.end());
      seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
      REQUIRE(std::ssize(seen) == n);
    }
}

TEST_CASE("a step of all ranks together covers the same samples for any world") {
  const auto step = [](int world, int batch, int t) {
    Indices all;
    for (int rank = 0; rank < world; ++rank) {
      const Indices mine = of_rank(96, world, rank, true, false, 9);
      all.insert(all.end(), mine.begin() + t * batch, mine.begin() + (t + 1) * batch);
    }
    std::sort(all.begin(), all.end());
    return all;
  };
  for (int t = 0; t < 8; ++t)
    for (int world : {2, 3, 4}) CHECK(step(world, 12 / world, t) == step(1, 12, t));
}

TEST_CASE("set_epoch changes the order as seed + epoch, and start resumes in mid-epoch") {
  CHECK(of_rank(50, 2, 0, true, false, 1, 0) == of_rank(50, 2, 0, true, false, 0, 1));
  CHECK(of_rank(50, 2, 0, true, false, 0, 0) != of_rank(50, 2, 0, true, false, 0, 1));
  DistributedSampler sampler(50, {4, 3, true, 7, false});
  sampler.set_epoch(2);
  const Indices whole = sampler.indices();
  sampler.set_epoch(2, 5);
  CHECK(sampler.size() == std::ssize(whole) - 5);
  CHECK(sampler.indices() == Indices(whole.begin() + 5, whole.end()));
  sampler.set_epoch(2);
  CHECK(sampler.indices() == whole);
  CHECK_THROWS_AS(sampler.set_epoch(2, 14), UsageError);
  CHECK_THROWS_AS(sampler.set_epoch(2, -1), UsageError);
}

TEST_CASE(
    "an epoch that R ranks began is dealt out to others: each sample once, in the same order") {
  for (const int before : {1, 2, 3, 5})
    for (const int after : {1, 2, 3, 4, 5})
      for (const std::int64_t n : {31, 60, 64})
        for (const std::int64_t taken : {0, 1, 4, 6})
          for (const bool drop_last : {true, false}) {
            INFO(before << " ranks, then " << after << ", " << n << " samples, " << taken);
            DistributedSampler alone(n, {1, 0, true, 11});
            alone.set_epoch(3);
            const Indices order = alone.indices();
            SamplerState state;
            Indices seen(static_cast<std::size_t>(taken * before));
            for (int rank = 0; rank < before; ++rank) {
              DistributedSampler sampler(n, {before, rank, true, 11, drop_last});
              sampler.set_epoch(3);
              const Indices mine = sampler.indices();
              for (std::int64_t i = 0; i < taken; ++i)
                seen[static_cast<std::size_t>(rank + i * before)] =
                    mine[static_cast<std::size_t>(i)];
              state = sampler.state(taken);
            }
            CHECK(state.epoch == 3);
            CHECK(state.used == taken * before);
            std::vector<Indices> rest;
            for (int rank = 0; rank < after; ++rank) {
              DistributedSampler sampler(n, {after, rank, true, 11, drop_last});
              sampler.load_state(state);
              rest.push_back(sampler.indices());
              REQUIRE(std::ssize(rest.back()) == sampler.size());
              REQUIRE(rest.back().size() == rest.front().size());
              CHECK(sampler.state(1).used == state.used + after);
            }
            for (std::size_t i = 0; i < rest[0].size(); ++i)
              for (const Indices& of : rest) seen.push_back(of[i]);
            const auto common = std::min(seen.size(), order.size());
            CHECK(Indices(seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(common)) ==
                  Indices(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(common)));
            // Number of padded samples, or negative if the end of the epoch is dropped.
            const std::int64_t surplus = std::ssize(seen) - n;
            CHECK(surplus < (drop_last ? 1 : after));
            CHECK(surplus > (drop_last ? -after : -1));
          }
}

TEST_CASE("a sampler's state resumes it, also at and beyond the end of an epoch") {
  DistributedSampler sampler(10, {3, 1, true, 0, false});
  sampler.set_epoch(2);
  const Indices whole = sampler.indices();
  sampler.load_state(sampler.state(1));
  CHECK(sampler.indices() == Indices(whole.begin() + 1, whole.end()));
  sampler.load_state(sampler.state(2));  // relative to the sampler's own start
  CHECK(sampler.indices() == Indices(whole.begin() + 3, whole.end()));
  sampler.load_state(sampler.state(1));  // 12 positions for 10 samples, by padding
  CHECK(sampler.indices().empty());
  sampler.load_state({2, 1000});
  CHECK(sampler.size() == 0);
  CHECK_THROWS_WITH(sampler.load_state({2, -1}), ContainsSubstring("cannot continue at sample -1"));
}

TEST_CASE("numbers at the end of their type are refused, and the sampler stays as it was") {
  constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();
  DistributedSampler sampler(10, {3, 1, false, 0, false});
  const Indices before = sampler.indices();
  for (const SamplerState state : {SamplerState{0, kEnd}, SamplerState{0, kEnd - 3},
                                   SamplerState{kEnd, 0}, SamplerState{-kEnd, 0}})
    CHECK_THROWS_AS(sampler.load_state(state), UsageError);
  CHECK_THROWS_AS(sampler.set_epoch(kEnd), UsageError);
  CHECK_THROWS_AS(sampler.set_epoch(0, kEnd), UsageError);
  CHECK(sampler.indices() == before);
  CHECK_THROWS_AS(DistributedSampler(kEnd, {}), UsageError);
  CHECK_THROWS_AS(DistributedSampler(10, {std::numeric_limits<int>::max(), 0}), UsageError);
  CHECK_THROWS_AS(SequentialSampler(kEnd), UsageError);
  CHECK_THROWS_AS(RandomSampler(kEnd), UsageError);
  StepSampler steps(10, 2, 0);
  CHECK_THROWS_AS(steps.load_state({kEnd, 0}), UsageError);
  CHECK_THROWS_AS(steps.load_state({0, kEnd}), UsageError);
}

TEST_CASE("arguments that PyTorch refuses are refused, and an unusable split has its own error") {
  CHECK_THROWS_WITH(DistributedSampler(8, {4, 4}),
                    ContainsSubstring("invalid rank 4") && ContainsSubstring("[0, 3]"));
  CHECK_THROWS_AS(DistributedSampler(8, {4, -1}), UsageError);
  CHECK_THROWS_AS(DistributedSampler(8, {0, 0}), UsageError);
  CHECK_THROWS_AS(DistributedSampler(-1, {1, 0}), UsageError);
  const auto require_batch = [](std::int64_t n, bool cut, std::int64_t batch, bool drop_batch) {
    require_a_batch(DistributedSampler(n, {4, 0, true, 0, cut}), batch, drop_batch);
  };
  CHECK_NOTHROW(require_batch(3, false, 8, false));  // padded, so each rank has one sample
  CHECK_THROWS_WITH(require_batch(3, true, 1, false),
                    ContainsSubstring("dataset smaller than the world: 3 samples for 4 ranks"));
  CHECK_THROWS_WITH(require_batch(0, false, 1, false), ContainsSubstring("dataset is empty"));
  CHECK_THROWS_WITH(require_batch(31, true, 8, true), ContainsSubstring("not one full batch"));
  CHECK_NOTHROW(require_batch(32, true, 8, true));
  CHECK_NOTHROW(require_batch(29, false, 8, true));  // padded to 8 each
}

TEST_CASE("RandomSampler seeds each pass from the generator as PyTorch's") {
  // torch.manual_seed(7); list(RandomSampler(range(10))) twice
  Generator g(7);
  RandomSampler sampler(10, g);
  CHECK(sampler.indices() == Indices{3, 0, 1, 9, 4, 7, 2, 5, 6, 8});
  CHECK(sampler.indices() == Indices{3, 2, 7, 8, 6, 1, 5, 9, 0, 4});
  CHECK(SequentialSampler(3).indices() == Indices{0, 1, 2});
}

TEST_CASE("StepSampler: while the ranks stay it deals as DistributedSampler", "[sampler]") {
  const int ranks = GENERATE(1, 2, 3, 5);
  const std::int64_t batch = GENERATE(1, 3), most = GENERATE(1, 2, 4), samples = 31,
                     batches = samples / (ranks * batch);
  StepSampler steps_of(samples, batch, 9, most);
  for (std::int64_t epoch = 0; epoch < 2; ++epoch)
    for (std::int64_t done = 0; done < batches; done += most) {
      const std::int64_t group = std::min(most, batches - done);  // the last one may be smaller
      CHECK(steps_of.epoch(ranks) == epoch);
      CHECK(steps_of.batches(ranks) == group);
      for (int r = 0; r < ranks; ++r) {
        DistributedSampler whole(samples, {ranks, r, true, 9, true});
        whole.set_epoch(epoch);
        const auto all = whole.indices();
        const auto begin = all.begin() + done * batch;
        CHECK(steps_of.indices(r, ranks) == std::vector(begin, begin + group * batch));
      }
      steps_of.step_done(ranks);
    }
}

TEST_CASE("StepSampler: ranks come and go, and no sample comes twice in an epoch", "[sampler]") {
  const std::int64_t samples = 101, batch = 4, most = GENERATE(1, 3);
  StepSampler sampler(samples, batch, 3, most);
  const std::vector<int> history{4, 4, 3, 1, 2, 2, 5, 5, 4, 1, 1, 3};
  std::set<std::int64_t> of_epoch;
  std::int64_t epoch = 0;
  for (std::size_t step = 0; step < 60; ++step) {
    const int ranks = history[step % history.size()];
    (void)sampler.indices(0, ranks + 1);  // a failed try with one more rank
    std::vector<std::int64_t> taken;
    for (int r = 0; r < ranks; ++r)
      for (const std::int64_t s : sampler.indices(r, ranks)) taken.push_back(s);
    StepSampler joined(samples, batch, 3, most);  // uses the state that a joining rank receives
    joined.load_state(sampler.state());
    CHECK(joined.indices(0, ranks) == sampler.indices(0, ranks));
    sampler.step_done(ranks);
    if (sampler.state().epoch != epoch) {
      CHECK(std::ssize(of_epoch) + ranks * batch > samples);  // the epoch did not end too early
      of_epoch.clear();
      epoch = sampler.state().epoch;
    }
    for (const std::int64_t s : taken) CHECK(of_epoch.insert(s).second);
    CHECK(std::ssize(of_epoch) == sampler.state().used);
  }
  CHECK(epoch > 3);
}

TEST_CASE("StepSampler: what cannot be dealt is refused", "[sampler]") {
  CHECK_THROWS_WITH(StepSampler(3, 4, 0), ContainsSubstring("not one full batch"));
  CHECK_THROWS_WITH(StepSampler(8, 4, 0, 0), ContainsSubstring("at least 1 batch, got 0"));
  StepSampler sampler(8, 4, 0);
  CHECK_THROWS_WITH(sampler.indices(0, 3), ContainsSubstring("not one full batch for each of 3"));
  CHECK_THROWS_AS(sampler.load_state({0, 9}), UsageError);
  CHECK_THROWS_AS(sampler.load_state({-1, 0}), UsageError);
}
