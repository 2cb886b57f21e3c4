// The parts of DataParallel: splitting a batch among the replicas, one thread per replica, and
// gathering the results.
//
//   batch of 10 rows, 4 replicas     rows per replica: ceil(10 / 4) = 3
//
//   |0 1 2|3 4 5|6 7 8|9|            the last has fewer; a batch of 5 would give the three chunks
//    r0    r1    r2    r3            2 + 2 + 1, and the fourth replica would stay idle
//
// This is PyTorch's rule (torch.chunk). No graph is recorded here (see data_parallel.cpp).
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

// Returns the first row of each chunk, followed by the number of rows. If there are no rows, there
// is one empty chunk. Requires replicas > 0.
[[nodiscard]] std::vector<std::int64_t> chunk_starts(std::int64_t rows, std::size_t replicas);

// Always returns a copy, even on the same device.
[[nodiscard]] Tensor copy_to(const Tensor& t, Device device);

// Returns the rows of each chunk. The first chunk is a view of batch; the others are copies on
// their devices.
[[nodiscard]] std::vector<Tensor> scatter(const Tensor& batch,
                                          const std::vector<std::int64_t>& starts,
                                          const std::vector<Device>& devices);

// Concatenates the parts along dimension 0, on root. Scalars become a vector, as in PyTorch. Throws
// UsageError, naming the replicas, if dtypes, numbers of dimensions, or other sizes differ.
[[nodiscard]] Tensor gather(const std::vector<Tensor>& parts, Device root);

// The first row of each part in gather()'s result, then the number of rows.
[[nodiscard]] std::vector<std::int64_t> part_starts(const std::vector<Tensor>& parts);

// ---- one thread per replica, and their errors ----
//
//   caller   --+-- replica 0 --+-->
//              +-- replica 1 --+
//              +-- replica 2 --+     all are joined, even if one fails
//
// A thread inherits the caller's grad mode, autocast state and, on its device, current stream.

// ReplicaError's message is "replica 2 on cuda:2: " followed by the replica's error, and its exit
// code is the exit code of that error.
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

// Runs body(i) on a separate thread for each device. If any of them throws, throws ReplicaError for
// the lowest i. `turn`, if given, is locked around each body, so that the bodies run one at a time.
void parallel_apply(const std::vector<Device>& devices,
                    const std::function<void(std::size_t replica)>& body,
                    std::mutex* turn = nullptr);

}  // namespace ringsmith
