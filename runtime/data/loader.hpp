// DataLoader: worker threads fetch batches ahead of time; the order is always the sampler's.
//
//   tasks    0 1 2 3 | 4 5 6 7 | 8 9 ...    one task = the indices of one batch
//            taken     window               workers take tasks in order, never beyond the window
//   slots              . . . 7              task t uses slot t mod window, whenever it completes
//   next()             ^ waits for task 4, although task 7 completed first
//
// A worker's exception is stored in the task's slot like a batch, and the corresponding next()
// throws it; the epoch can continue. Destroying an Epoch early stops the workers after their
// current batch.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/data/dataset.hpp"
#include "runtime/data/sampler.hpp"

namespace ringsmith {

struct DataLoaderOptions {
  std::int64_t batch_size = 1;
  int workers = 1;         // threads; 0: next() fetches on the caller's thread
  int prefetch = 2;        // batches ready or in progress, per worker
  bool drop_last = false;  // drop a last batch that is not full
  // The fetching thread also copies the batch into pinned memory, so that to(cuda) need not do so.
  bool pin_memory = false;
};

class DataLoader {
 public:
  // Dataset and sampler must outlive the loader. Throws UsageError if an option is out of range.
  DataLoader(const Dataset& dataset, Sampler& sampler, DataLoaderOptions options);

  [[nodiscard]] std::int64_t batches() const;  // per epoch

  // One pass over the sampler's indices, for a single thread.
  class Epoch {
   public:
    Epoch(const Dataset& dataset, const std::vector<std::int64_t>& indices, std::int64_t epoch,
          const DataLoaderOptions& options);
    ~Epoch();  // joins the workers
    Epoch(Epoch&&) noexcept;
    Epoch& operator=(Epoch&&) noexcept;

    // Returns the next batch; nothing after the last one. Throws the exception of Dataset::get().
    [[nodiscard]] std::optional<Batch> next();
    [[nodiscard]] std::int64_t position() const;  // batches taken so far

    // For the loop: for (const auto& [inputs, targets] : loader.epoch()).
    struct Iterator {
      Epoch* epoch;
      std::optional<Batch> batch;
      const Batch& operator*() const { return *batch; }
      Iterator& operator++() {
        batch = epoch->next();
        return *this;
      }
      bool operator==(std::default_sentinel_t /*end*/) const { return !batch; }
    };
    [[nodiscard]] Iterator begin() { return {this, next()}; }
    [[nodiscard]] static std::default_sentinel_t end() { return {}; }

   private:
    struct Prefetch;
    std::unique_ptr<Prefetch> prefetch_;
  };
  // Starts the workers immediately.
  [[nodiscard]] Epoch epoch();

 private:
  const Dataset& dataset_;
  Sampler& sampler_;
  DataLoaderOptions options_;
};

}  // namespace ringsmith
