// One thread for each replica, and their errors.
//
//   caller   --+-- replica 0 --+-->
//              +-- replica 1 --+
//              +-- replica 2 --+     everybody is waited for, also when one fails
//
// A thread starts with what the caller had: grad mode, and on its device the current stream.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/device/device.hpp"

namespace ringsmith {

// "replica 2 on cuda:2: ..." and what the replica threw, with the exit code of that.
class ReplicaError : public Error {
 public:
  ReplicaError(std::size_t replica, Device device, const std::exception& cause);
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
