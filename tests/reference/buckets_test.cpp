// Compares bucket plans with PyTorch's for random parameter sizes and limits.
#include <nlohmann/json.hpp>

#include "runtime/parallel/bucket.hpp"
#include "tests/reference/data.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;

TEST_CASE("parameters fall into the same buckets as in PyTorch") {
  if (!reference::has_part("buckets.json")) return;
  const nlohmann::json rows = reference::load("buckets.json");
  REQUIRE(!rows.empty());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    INFO("plan " << i);
    std::vector<BucketItem> items;
    for (const auto n : rows[i].at("numel").get<std::vector<std::size_t>>())
      items.push_back({Elements(n), DType::f32});
    std::vector<Bytes> limits;
    for (const auto n : rows[i].at("limits_bytes").get<std::vector<std::size_t>>())
      limits.emplace_back(n);
    CHECK(compute_bucket_assignment(items, limits).buckets ==
          rows[i].at("buckets_in_given_order").get<std::vector<std::vector<int>>>());
  }
}
