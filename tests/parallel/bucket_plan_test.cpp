// Compares plans with the bucket sizes that PyTorch's DDP reports for the same models. Also tests
// the arena's guarantees: no slots overlap, and the rebuilt plan never needs more memory.
#include <algorithm>
#include <numeric>
#include <random>

#include "runtime/parallel/bucket.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;

namespace {

// n layers of Linear(width, width): weight, bias, weight, bias, ...
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

TEST_CASE("fifteen Linear(1024) have PyTorch's buckets: one, then 1 MiB and 25 MiB caps") {
  const auto p = linears(15, 1024);
  CHECK(sizes(initial_plan(p, {}, false)) == std::vector<std::size_t>{62'976'000});
  CHECK(sizes(rebuilt_plan(p, {}, reversed(30))) ==
        std::vector<std::size_t>{4'198'400, 29'388'800, 29'388'800});
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
