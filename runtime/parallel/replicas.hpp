// What DataParallel is made of: a batch dealt to the replicas, a thread for each, and what they
// made of it put together again.
//
//   batch of 10 rows, 4 replicas     rows each: ceil(10 / 4) = 3
//
//   |0 1 2|3 4 5|6 7 8|9|            the last has fewer; a batch of 5 would make 2 + 2 + 1: three
//    r0    r1    r2    r3            chunks, and the fourth replica stays idle
//
// PyTorch's rule (torch.chunk). Nothing here records a graph; data_parallel.cpp does, both ways.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/device/device.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

// Row at which each chunk begins, and the number of rows: one element more than there are chunks.
// One empty chunk if there are no rows. replicas > 0.
[[nodiscard]] std::vector<std::int64_t> chunk_starts(std::int64_t rows, std::size_t replicas);

// Memory of its own with t's values: for another replica, which may be on the same device.
[[nodiscard]] Tensor copy_to(const Tensor& t, Device device);

// The rows of each chunk. The first is a view of batch, the others are copies on their devices.
[[nodiscard]] std::vector<Tensor> scatter(const Tensor& batch,
                                          const std::vector<std::int64_t>& starts,
                                          const std::vector<Device>& devices);

// Parts, one below the other, on root. Parts without dimensions become a vector, as in PyTorch.
// UsageError naming the replicas whose shapes or dtypes do not fit.
[[nodiscard]] Tensor gather(const std::vector<Tensor>& parts, Device root);

// The rows that part i has in gather()'s result.
[[nodiscard]] std::vector<std::int64_t> part_starts(const std::vector<Tensor>& parts);

// ---- one thread for each replica, and their errors ----
//
//   caller   --+-- replica 0 --+-->
//              +-- replica 1 --+
//              +-- replica 2 --+     all are waited for, even when one fails
//
// A thread starts with what the caller had: grad mode, and on its device the current stream.

// "replica 2 on cuda:2: ..." and what the replica threw, with the exit code of that.
class ReplicaError : public Error {
 public:
  ReplicaError(std::size_t replica, Device device, const std::string& what, ExitCode code)
      : Error("replica " + std::to_string(replica) + " on " + device.str() + ": " + what),
        replica_(replica),
        device_(device),
        code_(code) {}
  [[nodiscard]] std::size_t replica() const { return replica_; }
  [[nodiscard]] Device device() const { return device_; }
  [[nodiscard]] ExitCode exit_code() const noexcept override { return code_; }

 private:
  std::size_t replica_;
  Device device_;
  ExitCode code_;
};

// body(i) on a thread of its own for each of the devices. If some throw, ReplicaError for the
// lowest of them. `turn`, if given, is held around each body: one replica's host code at a time.
void parallel_apply(const std::vector<Device>& devices,
                    const std::function<void(std::size_t replica)>& body,
                    std::mutex* turn = nullptr);

}  // namespace ringsmith
