// A stream: a queue of operations, and a worker thread that runs them one after the other.
//
// CUDA's promises are declared to ThreadSanitizer per operation (order.hpp): the host's actions
// before enqueueing happen before the operation, and the operation before everything that waits for
// it.
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
#include <utility>
#include <vector>

#include "kernels/vgpu/grid.hpp"
#include "kernels/vgpu/settings.hpp"

namespace vgpu {

class Device;

struct Operation {
  const char* name;           // for reports
  std::function<void()> run;  // called in Quiet
  char begin = 0, end = 0;    // for ThreadSanitizer
};

// Operations captured from streams, or made by calls, and the nodes that each must follow. A node
// comes after these nodes in `nodes`, too.
struct Graph {
  struct Node {
    const char* name;
    std::function<void()> run;  // captured: may be called repeatedly
    // Made by a call instead: adds the operation to a stream.
    std::function<cudaError_t(CUstream_st*)> issue;
    std::vector<std::size_t> after;
  };
  std::shared_ptr<class Queue> origin;  // null: made by calls
  // Streams that joined the capture by waiting for one of its events. Operations refer to queues.
  std::vector<std::shared_ptr<class Queue>> joined;
  std::vector<Node> nodes;
  std::mutex mutex;  // for the capture
  bool ended = false;
};

// The point of a capture at which an event was recorded.
struct CapturePoint {
  std::shared_ptr<Graph> graph;
  std::vector<std::size_t> after;
};

class Queue : public std::enable_shared_from_this<Queue> {
 public:
  // legacy: a device's default stream. The legacy stream and the device's blocking streams wait for
  // each other's earlier work, but not for free streams.
  enum class Kind : std::uint8_t { free, blocking, legacy };
  static std::shared_ptr<Queue> create(Device& device, Kind kind);
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue() { Helpers::give_back(helpers_); }

  // Called outside of Quiet, because enqueueing orders the caller's earlier writes before the
  // operation.
  void add(const char* name, std::function<void()> run);
  [[nodiscard]] Kind kind() const { return kind_; }
  void synchronize();
  [[nodiscard]] bool idle();
  // Between begin_ and end_capture(), added operations go into a graph instead. begin_capture()
  // returns false if a capture has already begun, end_capture() null if none has. The second value
  // is false if a stream that has joined has later work for which this stream does not wait.
  [[nodiscard]] bool begin_capture();
  [[nodiscard]] std::pair<std::shared_ptr<Graph>, bool> end_capture();
  [[nodiscard]] bool capturing();
  // The queue whose capture this queue belongs to, or null.
  [[nodiscard]] const Queue* capture_origin();
  [[nodiscard]] CapturePoint capture_point();
  // Makes later operations follow the point, and joins its capture if necessary. Returns false if
  // this queue belongs to another capture.
  [[nodiscard]] bool join(const CapturePoint& point);
  // Makes the worker end once the queue is empty.
  void close();

  [[nodiscard]] Device& device() const { return device_; }
  [[nodiscard]] const std::string& name() const { return name_; }  // "stream 3 of device 0"
  [[nodiscard]] Helpers& helpers() const { return helpers_; }

 private:
  Queue(Device& device, std::uint64_t number, Kind kind);
  // Returns false if the worker has ended, so that the operation would never run.
  [[nodiscard]] bool push(const char* name, std::function<void()> run);
  [[nodiscard]] bool capture(const char* name, std::function<void()>& run);
  void wait_for(Queue& other);
  void work();
  Device& device_;
  const Kind kind_;
  const std::string name_;
  Random random_;  // for the delays
  Helpers& helpers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Operation>> waiting_;
  std::shared_ptr<Operation> last_;
  std::uint64_t added_ = 0, done_ = 0;
  std::shared_ptr<Graph> graph_;    // the graph being captured
  std::vector<std::size_t> after_;  // the nodes that the next captured operation must follow
  bool closed_ = false;  // no operations will be added, except for the default stream's waits
  bool ended_ = false;   // the worker has run all operations and takes no more
};

}  // namespace vgpu

struct CUstream_st {
  std::shared_ptr<vgpu::Queue> queue;
  int priority = 0;  // stored without effect, because every stream has a thread
};

namespace vgpu {
// The operation that this thread runs for a stream, e.g. "copy in stream 3 of device 0", for
// reports. Null on other threads. constinit avoids a wrapper function, for which g++'s UBSan
// reports a null pointer.
extern constinit thread_local const std::string* current_operation;
extern constinit thread_local bool in_copy;           // true during a copy or fill
extern constinit thread_local bool in_host_function;  // a host function must not call CUDA

void outside_host_functions(const char* call);

// Calls fail() and returns null if the handle is unknown, has been destroyed, or is an unsupported
// default stream.
Queue* queue_of(CUstream_st* stream, const char* call);

// Handles that the program may use. The address of a destroyed handle is not reused for a while, so
// that a stale handle is not mistaken for a new one.
template <class T>
class Living {
 public:
  T* add(std::unique_ptr<T> made) {
    const std::scoped_lock lock(mutex_);
    living_.insert(made.get());
    return made.release();
  }
  // Returns null if the handle may be used, else the reason why it is refused.
  [[nodiscard]] const char* refuse(const T* handle) const {
    const std::scoped_lock lock(mutex_);
    if (living_.count(handle) != 0) return nullptr;
    for (const auto& d : dead_)
      if (d.get() == handle) return "has already been destroyed";
    return "is not a valid handle";
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
