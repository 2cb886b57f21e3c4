// loading: 40 batches that take 2 to 8 ms to fetch, and training steps of 3 ms, with 0 to 4
// workers. Fetching and computing are sleeps: this shows which side waits for the other, not how
// fast a disk is. The samples, in their order, are hashed into one number.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "runtime/data/loader.hpp"

using namespace ringsmith;
using Clock = std::chrono::steady_clock;

class SlowShelf : public Dataset {
 public:
  [[nodiscard]] std::int64_t size() const override { return 320; }
  [[nodiscard]] Batch get(std::span<const std::int64_t> indices) const override {
    // Irregular, but always the same for a batch: whichever worker has a slow batch is late.
    std::this_thread::sleep_for(std::chrono::milliseconds(2 + indices[0] % 7));
    const Shape shape{static_cast<std::int64_t>(indices.size())};
    Batch batch{Tensor::empty(shape, {DType::i64}), Tensor::empty(shape, {DType::i64})};
    std::copy(indices.begin(), indices.end(), batch.inputs.data<std::int64_t>());
    std::copy(indices.begin(), indices.end(), batch.targets.data<std::int64_t>());
    return batch;
  }
};

int main() {
  const SlowShelf shelf;
  std::printf("%8s %10s %12s   %s\n", "workers", "ms", "waiting ms", "samples, in order");
  for (const int workers : {0, 1, 2, 4}) {
    DistributedSampler sampler(shelf.size(), {});
    DataLoader loader(shelf, sampler, {.batch_size = 8, .workers = workers, .prefetch = 2});
    std::uint64_t trace = 0;
    double waited = 0;
    const auto since = [](Clock::time_point then) {
      return std::chrono::duration<double, std::milli>(Clock::now() - then).count();
    };
    const auto begun = Clock::now();
    DataLoader::Epoch epoch = loader.epoch();
    for (;;) {
      const auto asked = Clock::now();
      const std::optional<Batch> batch = epoch.next();
      waited += since(asked);
      if (!batch) break;
      for (const std::int64_t id : batch->inputs.to_vector<std::int64_t>())
        trace = trace * 1099511628211U + static_cast<std::uint64_t>(id);
      std::this_thread::sleep_for(std::chrono::milliseconds(3));  // the training step
    }
    std::printf("%8d %10.1f %12.1f   %016llx\n", workers, since(begun), waited,
                static_cast<unsigned long long>(trace));
  }
}
