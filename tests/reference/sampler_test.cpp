// randperm and DistributedSampler must give PyTorch's indices.
#include "runtime/data/sampler.hpp"

#include <cstdio>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/base/rng.hpp"
#include "tests/reference/data.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::reference;
using Indices = std::vector<std::int64_t>;

TEST_CASE("randperm draws PyTorch's permutations") {
  if (!has_part("randperm.json")) return;
  const nlohmann::json table = load("randperm.json");
  REQUIRE(!table.empty());
  for (const auto& row : table) {
    INFO("seed " << row.at("seed") << ", n " << row.at("n"));
    Generator g(row.at("seed").get<std::uint64_t>());
    const auto n = row.at("n").get<std::int64_t>();
    if (row.contains("repeated"))  // several permutations from one generator
      for (const auto& perm : row.at("repeated")) CHECK(randperm(n, g) == perm.get<Indices>());
    else
      CHECK(randperm(n, g) == row.at("perm").get<Indices>());
  }
  fmt::print("reference: {} permutations\n", table.size());
}

TEST_CASE("DistributedSampler gives every rank PyTorch's indices in PyTorch's order") {
  if (!has_part("sampler.json")) return;
  const nlohmann::json table = load("sampler.json");
  REQUIRE(!table.empty());
  for (const auto& row : table) {
    DistributedSamplerOptions options;
    options.replicas = row.at("replicas").get<int>();
    options.shuffle = row.at("shuffle").get<bool>();
    options.seed = row.at("seed").get<std::uint64_t>();
    options.drop_last = row.at("drop_last").get<bool>();
    const auto want = row.at("indices").get<std::vector<Indices>>();
    REQUIRE(static_cast<int>(want.size()) == options.replicas);
    for (options.rank = 0; options.rank < options.replicas; ++options.rank) {
      INFO("n " << row.at("n") << ", rank " << options.rank << " of " << options.replicas
                << ", drop_last " << options.drop_last << ", shuffle " << options.shuffle
                << ", seed " << options.seed << ", epoch " << row.at("epoch"));
      DistributedSampler sampler(row.at("n").get<std::int64_t>(), options);
      sampler.set_epoch(row.at("epoch").get<std::int64_t>());
      const Indices& mine = want[static_cast<std::size_t>(options.rank)];
      CHECK(sampler.indices() == mine);
      CHECK(sampler.size() == static_cast<std::int64_t>(mine.size()));
    }
  }
  fmt::print("reference: {} samplers\n", table.size());
  std::fflush(stdout);
}
