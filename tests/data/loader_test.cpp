#include "runtime/data/loader.hpp"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "runtime/base/error.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;

namespace {

// Sample i is the number i. A batch sleeps for a time that depends on its indices, so that workers
// finish out of order. One index may throw.
class Sleepy : public Dataset {
 public:
  explicit Sleepy(std::int64_t n, std::int64_t bad = -1) : n_(n), bad_(bad) {}
  [[nodiscard]] std::int64_t size() const override { return n_; }
  [[nodiscard]] Batch get(std::span<const std::int64_t> indices) const override {
    Generator g(static_cast<std::uint64_t>(indices.front()) + 17);
    std::this_thread::sleep_for(std::chrono::microseconds(randint(0, 2000, g)));
    ++calls;
    const Tensor numbers = Tensor::empty({std::ssize(indices)}, {DType::i64});
    Batch batch{numbers, numbers};
    auto* out = batch.inputs.data<std::int64_t>();
    for (const std::int64_t i : indices) {
      check_index(i);
      if (i == bad_) throw std::runtime_error("sample " + std::to_string(i) + " is bad");
      *out++ = i;
    }
    return batch;
  }
  mutable std::atomic<int> calls{0};

 private:
  std::int64_t n_;
  std::int64_t bad_;
};

std::vector<std::int64_t> drain(DataLoader::Epoch epoch) {
  std::vector<std::int64_t> seen;
  while (const std::optional<Batch> batch = epoch.next()) {
    const std::vector<std::int64_t> values = batch->inputs.to_vector<std::int64_t>();
    seen.insert(seen.end(), values.begin(), values.end());
  }
  CHECK_FALSE(epoch.next().has_value());  // stays at the end
  return seen;
}

}  // namespace

TEST_CASE("the loader's order is the sampler's, whatever the number and speed of workers") {
  const Sleepy dataset(203);
  DistributedSampler sampler(203, {1, 0, true, 3, false});
  const std::vector<std::int64_t> expected = sampler.indices();
  for (int workers : {0, 1, 2, 3, 8})
    for (int prefetch : {1, 2, 5}) {
      DataLoader loader(dataset, sampler, {7, workers, prefetch, false});
      REQUIRE(loader.batches() == 29);
      REQUIRE(drain(loader.epoch()) == expected);
    }
}

TEST_CASE("a range-for sees what next() gives, may stop early, and throws what a worker threw") {
  const Sleepy dataset(30, 17);
  SequentialSampler sampler(30);
  for (int workers : {0, 2}) {
    DataLoader loader(dataset, sampler, {4, workers, 2, false});
    std::vector<std::int64_t> firsts;
    const auto read_all = [&] {
      for (const auto& [inputs, targets] : loader.epoch())
        firsts.push_back(inputs.to_vector<std::int64_t>().front());
    };
    CHECK_THROWS_AS(read_all(), std::runtime_error);
    CHECK(firsts == std::vector<std::int64_t>{0, 4, 8, 12});
    for (const Batch& batch : loader.epoch())
      if (batch.inputs.to_vector<std::int64_t>().back() == 7) break;
  }
  SequentialSampler none(0);
  for (const Batch& batch : DataLoader(dataset, none, {4, 1, 2, false}).epoch())
    FAIL("a batch of " << batch.inputs.size(0));
}

TEST_CASE("the ragged last batch comes or goes by drop_last, and an empty epoch ends at once") {
  const Sleepy dataset(10);
  for (int workers : {0, 2}) {
    SequentialSampler sampler(10);
    CHECK(drain(DataLoader(dataset, sampler, {4, workers, 2, false}).epoch()).size() == 10);
    DataLoader dropping(dataset, sampler, {4, workers, 2, true});
    CHECK(dropping.batches() == 2);
    CHECK(drain(dropping.epoch()).size() == 8);
    SequentialSampler none(0);
    CHECK(drain(DataLoader(dataset, none, {4, workers, 2, false}).epoch()).empty());
  }
}

TEST_CASE("a worker's exception arrives in its turn, and the batches after it still come") {
  const Sleepy dataset(40, 22);
  SequentialSampler sampler(40);
  for (int workers : {0, 1, 4}) {
    DataLoader loader(dataset, sampler, {4, workers, 3, false});
    DataLoader::Epoch epoch = loader.epoch();
    for (int batch = 0; batch < 10; ++batch) {
      CHECK(epoch.position() == batch);
      if (batch == 5)
        REQUIRE_THROWS_WITH(epoch.next(), "sample 22 is bad");
      else
        REQUIRE(epoch.next()->inputs.to_vector<std::int64_t>().front() == 4 * batch);
    }
    CHECK_FALSE(epoch.next().has_value());
  }
}

TEST_CASE("workers never run beyond the prefetch window, and an epoch can be left at any point") {
  for (int taken = 0; taken < 6; ++taken) {
    const Sleepy dataset(1000);
    SequentialSampler sampler(1000);
    DataLoader loader(dataset, sampler, {1, 3, 2, false});
    {
      DataLoader::Epoch epoch = loader.epoch();
      for (int i = 0; i < taken; ++i) REQUIRE(epoch.next().has_value());
      std::this_thread::sleep_for(std::chrono::milliseconds(8));
    }  // the destructor joins the workers
    CHECK(dataset.calls <= taken + 6);
    const int calls = dataset.calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
    CHECK(dataset.calls == calls);
  }
}

TEST_CASE("resuming an epoch gives the batches that were still to come") {
  const Sleepy dataset(64);
  DistributedSampler sampler(64, {2, 1, true, 3, false});
  sampler.set_epoch(4);
  const std::vector<std::int64_t> whole = drain(DataLoader(dataset, sampler, {5, 2, 2}).epoch());
  sampler.set_epoch(4, 3 * 5);  // three batches were used
  const std::vector<std::int64_t> rest = drain(DataLoader(dataset, sampler, {5, 2, 2}).epoch());
  CHECK(rest == std::vector<std::int64_t>(whole.begin() + 15, whole.end()));
}

TEST_CASE("loader options out of range are refused") {
  const Sleepy dataset(4);
  SequentialSampler sampler(4);
  CHECK_THROWS_AS(DataLoader(dataset, sampler, {0, 1, 1}), UsageError);
  CHECK_THROWS_AS(DataLoader(dataset, sampler, {1, -1, 1}), UsageError);
  CHECK_THROWS_AS(DataLoader(dataset, sampler, {1, 1, 0}), UsageError);
}

TEST_CASE("pin_memory: batches lie in page-locked memory of the host, not on a device") {
  const Sleepy dataset(11);
  SequentialSampler sampler(11);
  const std::vector<std::int64_t> plain = drain(DataLoader(dataset, sampler, {4, 0}).epoch());
  for (const int workers : {0, 2}) {
    DataLoader loader(dataset, sampler, {.batch_size = 4, .workers = workers, .pin_memory = true});
    DataLoader::Epoch epoch = loader.epoch();
    if (device_count() == 0) {  // no device, so no pinned memory
      CHECK_THROWS_AS(epoch.next(), CudaError);
      continue;
    }
    for (int batch = 0; batch < 3; ++batch) {
      const std::optional<Batch> b = epoch.next();
      REQUIRE(b);
      CHECK(b->inputs.device().is_cpu());
      CHECK(b->inputs.is_pinned());
      CHECK(b->targets.is_pinned());
      const Batch there = b->to(Device::cuda(0));
      CHECK(there.inputs.device() == Device::cuda(0));
      CHECK(there.inputs.to_vector<std::int64_t>() == b->inputs.to_vector<std::int64_t>());
    }
    CHECK(drain(loader.epoch()) == plain);
  }
}
