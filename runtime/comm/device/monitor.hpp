// Watches launched operations, because streams have no deadlines and the host may not be waiting.
//
// A thread looks at the oldest operation that is not done. If that operation takes too long after
// its data was ready, or if a peer has failed or died, the thread stops this rank's kernels (kernel
// engine), records where they waited, and breaks the group: the next call and host_wait() throw.
// Peers read the reported failure and throw it, too.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/comm/device/calls.hpp"
#include "runtime/comm/device/device_memory.hpp"
#include "runtime/comm/transport/health.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith::comm::cuda_ipc {

// One operation on device memory:
//
//     caller's stream   ... ready ...........................  wait(done) ...
//     group's stream        wait(ready) [the collective] done
class DeviceOperation {
 public:
  explicit DeviceOperation(ringsmith::Event ready) : ready_(std::move(ready)) {}

  // The event happens when the caller's stream has done all work enqueued before the call.
  [[nodiscard]] const ringsmith::Event& ready() const { return ready_; }

  // Must be called once, when all work has been enqueued on the group's stream.
  void launched(std::uint64_t number, std::string call, std::uint64_t sequence,
                const Stream& stream) {
    number_ = number;
    call_ = std::move(call);
    sequence_ = static_cast<std::int64_t>(sequence);
    done_ = ringsmith::Event::record(stream);
  }
  // After launched():
  [[nodiscard]] const ringsmith::Event& done() const { return done_; }
  [[nodiscard]] std::uint64_t number() const { return number_; }  // from 1; sequence() if staged
  [[nodiscard]] const std::string& call() const { return call_; }
  [[nodiscard]] std::int64_t sequence() const { return sequence_; }

 private:
  ringsmith::Event ready_, done_;
  std::uint64_t number_ = 0;
  std::string call_;
  std::int64_t sequence_ = -1;
};

class Monitor {
 public:
  // report: the kernel engine's record, or null; must remain valid until stop() returns.
  Monitor(Health& health, DevicePeers& device_peers, Device device, KernelReport* report);
  ~Monitor() { stop(); }

  [[nodiscard]] std::uint64_t next_number() { return ++numbers_; }
  void watch(std::shared_ptr<const DeviceOperation> operation);

  // Blocks until the operation is done. Throws if it or an earlier one has failed. May be called
  // after stop().
  void wait_for(const DeviceOperation& operation);

  // Ends all waits on the device after the group has failed on the host.
  void give_up() noexcept;

  // Blocks until all launched operations are done or one has failed, then ends the thread.
  void stop();

 private:
  void run();
  // True if the kernel of this operation, or of an earlier one, has given up.
  [[nodiscard]] bool has_complained(const DeviceOperation& operation) const;
  void look_at(const DeviceOperation& operation, bool done, std::chrono::milliseconds age);
  void fail(const DeviceOperation& operation, FailureKind kind, int culprit, std::string text);
  static void wait_for_last_words(const DeviceOperation& operation);
  [[nodiscard]] Where where_of(const DeviceOperation& operation, int peer) const;
  void throw_if_failed(const DeviceOperation& operation);

  Health& health_;
  DevicePeers& device_peers_;
  Device device_;
  KernelReport* report_;
  std::uint64_t numbers_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<const DeviceOperation>> launched_;
  bool stopping_ = false, ended_ = false;
  // Number of the first operation that failed. All later operations count as failed, too.
  std::uint64_t failed_from_ = ~std::uint64_t{0};
  FailureKind kind_ = FailureKind::none;
  std::string text_;
  Where where_;
  std::thread thread_;
};

}  // namespace ringsmith::comm::cuda_ipc
