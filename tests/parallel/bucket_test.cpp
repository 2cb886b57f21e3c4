// Compares the bucket rule with the worked examples of PyTorch's own test, and tests corner cases.
#include "runtime/parallel/bucket.hpp"

#include "tests/support/catch.hpp"

using namespace ringsmith;
using Buckets = std::vector<std::vector<int>>;

namespace {

std::vector<BucketItem> floats(const std::vector<std::size_t>& counts) {
  std::vector<BucketItem> items;
  for (const std::size_t n : counts) items.push_back({Elements(n), DType::f32});
  return items;
}

std::vector<BucketItem> alternating() {
  std::vector<BucketItem> items;
  for (int i = 0; i < 3; ++i) {
    items.push_back({Elements(50), DType::f32});
    items.push_back({Elements(25), DType::f64});
  }
  return items;
}

std::vector<Bytes> bytes(const std::vector<std::size_t>& values) {
  std::vector<Bytes> out;
  for (const std::size_t v : values) out.emplace_back(v);
  return out;
}

}  // namespace

TEST_CASE("a bucket is closed by the tensor that reaches its limit, which stays in") {
  CHECK(compute_bucket_assignment(floats({100, 200, 100, 50}), bytes({400})).buckets ==
        Buckets{{0}, {1}, {2}, {3}});
  CHECK(compute_bucket_assignment(floats({99, 200, 100, 50}), bytes({400})).buckets ==
        Buckets{{0, 1}, {2}, {3}});
  CHECK(compute_bucket_assignment(floats({1, 1, 1}), bytes({1u << 20})).buckets ==
        Buckets{{0, 1, 2}});
}

TEST_CASE("dtypes never share a bucket and each walks its own list of limits") {
  CHECK(compute_bucket_assignment(alternating(), bytes({400})).buckets ==
        Buckets{{0, 2}, {1, 3}, {4}, {5}});
  const auto two = compute_bucket_assignment(alternating(), bytes({200, 400}));
  CHECK(two.buckets == Buckets{{0}, {1}, {2, 4}, {3, 5}});
  CHECK(two.limits == bytes({200, 200, 400, 400}));
}

TEST_CASE("after the last limit the last limit stays in force") {
  const auto got = compute_bucket_assignment(floats({10, 10, 10, 10}), bytes({40, 80}));
  CHECK(got.buckets == Buckets{{0}, {1, 2}, {3}});
  CHECK(got.limits == bytes({40, 80, 80}));
}

TEST_CASE("a rebuild keeps ready order instead of sorting by index") {
  const std::vector<int> ready{3, 2, 1, 0};
  CHECK(compute_bucket_assignment(floats({5, 160, 32, 512}), bytes({1u << 20}), ready).buckets ==
        Buckets{{3, 2, 1, 0}});
  CHECK(compute_bucket_assignment(floats({5, 160, 32, 512}), bytes({600, 100}), ready).buckets ==
        Buckets{{3, 2}, {1}, {0}});
  // PyTorch reports this plan for 15 x Linear(1024) with bias, last layer ready first.
  std::vector<BucketItem> items;
  std::vector<int> order;
  for (int i = 29; i >= 0; --i) {
    order.push_back(i);
    items.push_back({Elements(i % 2 == 1 ? 1024u : 1024u * 1024u), DType::f32});
  }
  const auto got = compute_bucket_assignment(items, bytes({1u << 20, 25u << 20}), order);
  REQUIRE(got.buckets.size() == 3);
  CHECK(got.buckets[0] == std::vector<int>{29, 28});
  CHECK(got.buckets[1].size() == 14);
}

TEST_CASE("nothing to lay out makes no bucket, and bad arguments are named") {
  CHECK(compute_bucket_assignment({}, bytes({1})).buckets.empty());
  CHECK_THROWS_WITH(compute_bucket_assignment(floats({1}), {}),
                    ContainsSubstring("at least one size limit"));
  const std::vector<int> three{0, 1, 2};
  CHECK_THROWS_WITH(compute_bucket_assignment(floats({1}), bytes({1}), three),
                    ContainsSubstring("3 indices for 1"));
}
