#include "runtime/parallel/parallel_apply.hpp"

#include <exception>
#include <optional>
#include <thread>

#include "runtime/autograd/node.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith {

ReplicaError::ReplicaError(std::size_t replica, Device device, const std::exception& cause)
    : Error("replica " + std::to_string(replica) + " on " + device.str() + ": " + cause.what()),
      replica_(replica),
      device_(device) {
  const auto* error = dynamic_cast<const Error*>(&cause);
  code_ = error != nullptr ? error->exit_code() : ExitCode::internal;
}

namespace {

[[noreturn]] void throw_on(std::size_t replica, Device device, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& cause) {
    throw ReplicaError(replica, device, cause);
  } catch (...) {
    throw ReplicaError(replica, device, std::runtime_error("threw something that is no exception"));
  }
}

// The threads are joined whatever happens, also when the system refuses to start another.
class Threads {
 public:
  Threads() = default;
  ~Threads() { join(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  template <class F>
  void start(F&& f) {
    threads_.emplace_back(std::forward<F>(f));
  }
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::vector<std::thread> threads_;
};

}  // namespace

void parallel_apply(const std::vector<Device>& devices,
                    const std::function<void(std::size_t replica)>& body, std::mutex* turn) {
  std::vector<std::exception_ptr> errors(devices.size());
  const bool recording = grad_enabled();
  Threads threads;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const Stream stream = devices[i].is_cuda() ? Stream::current(devices[i]) : Stream();
    threads.start([&, i, stream] {
      try {
        const DeviceGuard on(devices[i]);
        const StreamGuard in(stream);
        std::optional<NoGradGuard> no_grad;
        if (!recording) no_grad.emplace();
        std::unique_lock<std::mutex> held;
        if (turn != nullptr) held = std::unique_lock(*turn);
        body(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  }
  threads.join();
  for (std::size_t i = 0; i < errors.size(); ++i)
    if (errors[i]) throw_on(i, devices[i], errors[i]);
}

}  // namespace ringsmith
