// A stream: operations in a queue, and a worker thread that carries them out one after the other.
//
// What CUDA promises is told to ThreadSanitizer operation by operation (order.hpp): what the host
// did before enqueueing comes before the operation, the operation before whatever waits for it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "kernels/vgpu/grid.hpp"
#include "kernels/vgpu/settings.hpp"

namespace vgpu {

class Device;

struct Operation {
  const char* name;           // for reports
  std::function<void()> run;  // called Quiet
  char begin = 0, end = 0;    // for ThreadSanitizer
};

// Operations that a stream was given to keep, in its order, and the stream's queue: they name it.
struct Graph {
  struct Node {
    const char* name;
    std::function<void()> run;  // may be called again and again
  };
  std::shared_ptr<class Queue> origin;
  std::vector<Node> nodes;
};

class Queue : public std::enable_shared_from_this<Queue> {
 public:
  // legacy: a device's default stream, of which CUDA promises that it and the device's blocking
  // streams wait for each other's earlier work; none of them for free ones.
  enum class Kind : std::uint8_t { free, blocking, legacy };
  static std::shared_ptr<Queue> create(Device& device, Kind kind);
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue() { Helpers::give_back(helpers_); }

  // Called outside of Quiet: enqueueing orders the caller's earlier writes before the operation.
  void add(const char* name, std::function<void()> run);
  [[nodiscard]] Kind kind() const { return kind_; }
  // Waits for all that has been added so far.
  void synchronize();
  [[nodiscard]] bool idle();
  // From begin_ to end_capture() what is added goes into a graph instead. False, or null: it did
  // (not) do so before.
  [[nodiscard]] bool begin_capture();
  [[nodiscard]] std::unique_ptr<Graph> end_capture();
  [[nodiscard]] bool capturing();
  void launch(const Graph& graph);
  // The worker ends when the queue is empty.
  void close();

  [[nodiscard]] Device& device() const { return device_; }
  [[nodiscard]] const std::string& name() const { return name_; }  // "stream 3 of device 0"
  [[nodiscard]] Helpers& helpers() const { return helpers_; }

 private:
  Queue(Device& device, std::uint64_t number, Kind kind);
  void push(const char* name, std::function<void()> run);
  [[nodiscard]] bool capture(const char* name, std::function<void()>& run);
  void wait_for(Queue& other);
  void work();
  Device& device_;
  const Kind kind_;
  const std::string name_;
  Random random_;  // of the delays
  Helpers& helpers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Operation>> waiting_;
  std::shared_ptr<Operation> last_;
  std::uint64_t added_ = 0, done_ = 0;
  std::unique_ptr<Graph> graph_;  // that is being captured
  bool closed_ = false;
};

}  // namespace vgpu

struct CUstream_st {
  std::shared_ptr<vgpu::Queue> queue;
  int priority = 0;  // kept, and of no effect: every stream has a thread
};

namespace vgpu {
// What this thread does for a stream, for reports: "copy in stream 3 of device 0"; null on other
// threads. constinit: read without a wrapper function, which g++'s UBSan takes for a null pointer.
extern constinit thread_local const std::string* current_operation;
extern constinit thread_local bool
    in_copy;  // and may touch device memory, though it runs no kernel
extern constinit thread_local bool in_host_function;  // and must not call CUDA

// Ends the program if a host function makes this call.
void outside_host_functions(const char* call);

// The stream's queue; null, with fail() called, if it is none, destroyed, or a default stream.
Queue* queue_of(CUstream_st* stream, const char* call);

// Streams or events that the program may use. A destroyed one keeps its address for a while, so
// that a stale handle is not taken for that of a new one.
template <class T>
class Living {
 public:
  T* add(std::unique_ptr<T> made) {
    const std::scoped_lock lock(mutex_);
    living_.insert(made.get());
    return made.release();
  }
  // Null if it is living; else what to say of it.
  [[nodiscard]] const char* refuse(const T* handle) const {
    const std::scoped_lock lock(mutex_);
    if (living_.count(handle) != 0) return nullptr;
    for (const auto& d : dead_)
      if (d.get() == handle) return "was destroyed before";
    return "is not a handle that this program was given";
  }
  void bury(T* handle) {
    constexpr std::size_t kKept = 1024;
    const std::scoped_lock lock(mutex_);
    living_.erase(handle);
    dead_.emplace_back(handle);
    if (dead_.size() > kKept) dead_.pop_front();
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_set<const T*> living_;
  std::deque<std::unique_ptr<T>> dead_;
};

}  // namespace vgpu
