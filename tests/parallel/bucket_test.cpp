// Compares the bucket rule with the worked examples of PyTorch's own test, and plans with the
// bucket sizes that PyTorch's DDP reports. Also tests that the arena's slots never overlap and that
// the rebuilt plan needs no more memory.
#include "runtime/parallel/bucket.hpp"

#include <algorithm>
#include <numeric>
#include <random>

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

// Returns n layers of Linear(width, width): weight, bias, weight, bias, ...
std::vector<BucketItem> linears(std::size_t n, std::size_t width) {
  std::vector<BucketItem> items;
  for (std::size_t i = 0; i < n; ++i) {
    items.push_back({Elements(width * width), DType::f32});
    items.push_back({Elements(width), DType::f32});
  }
  return items;
}

std::vector<int> reversed(std::size_t n) {
  std::vector<int> order(n);
  std::iota(order.rbegin(), order.rend(), 0);
  return order;
}

std::vector<std::size_t> sizes(const BucketPlan& plan) {
  std::vector<std::size_t> out;
  for (const auto& bucket : plan.buckets) out.push_back(bucket.size().value);
  return out;
}

void check_sound(const BucketPlan& plan, const std::vector<BucketItem>& parameters) {
  CHECK(plan.end() <= arena_size(parameters));
  std::vector<int> seen(parameters.size());
  Bytes end;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const BucketLayout& bucket = plan.buckets[b];
    CHECK(bucket.start >= end);
    CHECK(bucket.start.value % 64 == 0);
    Elements offset;
    for (std::size_t s = 0; s < bucket.slots.size(); ++s) {
      const BucketSlot& slot = bucket.slots[s];
      const auto p = static_cast<std::size_t>(slot.parameter);
      ++seen[p];
      CHECK(slot.offset == offset);
      CHECK(slot.count == parameters[p].count);
      CHECK(parameters[p].dtype == bucket.dtype);
      CHECK(plan.place[p].bucket == static_cast<int>(b));
      CHECK(plan.place[p].slot == static_cast<int>(s));
      offset += slot.count;
    }
    CHECK(offset == bucket.count);
    end = bucket.start + bucket.size();
  }
  CHECK(seen == std::vector<int>(parameters.size(), 1));
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
}

TEST_CASE("nothing to lay out makes no bucket, and bad arguments are named") {
  CHECK(compute_bucket_assignment({}, bytes({1})).buckets.empty());
  CHECK_THROWS_WITH(compute_bucket_assignment(floats({1}), {}),
                    ContainsSubstring("at least one size limit"));
  const std::vector<int> three{0, 1, 2};
  CHECK_THROWS_WITH(compute_bucket_assignment(floats({1}), bytes({1}), three),
                    ContainsSubstring("3 indices for 1"));
}

TEST_CASE("fifteen Linear(1024) have PyTorch's buckets: one, then 1 MiB and 25 MiB caps") {
  const auto p = linears(15, 1024);
  CHECK(sizes(initial_plan(p, {}, false)) == std::vector<std::size_t>{62'976'000});
  const BucketPlan rebuilt = rebuilt_plan(p, {}, reversed(30));
  CHECK(sizes(rebuilt) == std::vector<std::size_t>{4'198'400, 29'388'800, 29'388'800});
  REQUIRE(rebuilt.buckets[0].slots.size() == 2);
  CHECK(rebuilt.buckets[0].slots[0].parameter == 29);
  CHECK(rebuilt.buckets[0].slots[1].parameter == 28);
  CHECK(rebuilt.buckets[1].slots.size() == 14);
  CHECK(sizes(initial_plan(p, {}, true)) ==
        std::vector<std::size_t>{4'096, 29'388'800, 29'388'800, 4'194'304});
}

TEST_CASE("six Linear(512) under a cap of 2 MiB have PyTorch's buckets") {
  CHECK(sizes(rebuilt_plan(linears(6, 512), {MiB(1), MiB(2)}, reversed(12))) ==
        std::vector<std::size_t>{1'050'624, 2'101'248, 2'101'248, 1'050'624});
}

TEST_CASE("no slot overlaps another and every plan fits into the arena") {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<BucketItem> parameters(1 + random() % 40);
    const DType dtypes[] = {DType::f32, DType::f16, DType::f64, DType::bf16};
    for (auto& item : parameters)
      item = {Elements(random() % 5 == 0 ? random() % 3 : random() % 3000), dtypes[random() % 4]};
    const BucketCaps caps{Bytes(1 + random() % 2000), Bytes(1 + random() % 20000)};
    std::vector<int> ready = reversed(parameters.size());
    std::shuffle(ready.begin(), ready.end(), random);
    check_sound(initial_plan(parameters, caps, false), parameters);
    check_sound(initial_plan(parameters, caps, true), parameters);
    check_sound(rebuilt_plan(parameters, caps, ready), parameters);
  }
}

TEST_CASE("a ready order that is no permutation is refused") {
  const auto p = linears(1, 4);
  CHECK_THROWS_AS(rebuilt_plan(p, {}, std::vector<int>{0, 0}), UsageError);
  CHECK_THROWS_AS(rebuilt_plan(p, {}, std::vector<int>{0, 2}), UsageError);
  CHECK_THROWS_AS(rebuilt_plan(p, {}, std::vector<int>{1}), UsageError);
  CHECK_THROWS_AS(rebuilt_plan(p, {}, std::vector<int>{-1, 0}), UsageError);
}
