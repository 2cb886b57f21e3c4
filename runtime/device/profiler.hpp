// The profiler counts the calls, the time, the arithmetic and the bytes of each operation.
//
//   linear(x, w, b)      |------------- Operation "linear" -------------|
//     kernels::linear          |--- KernelScope: its FLOP and bytes ---|
//
// Operations are the differentiable functions (runtime/autograd/functions) and the nodes that
// backward runs. A kernel's work (kernels/work.hpp) counts towards the innermost operation of its
// thread; outside any operation, e.g. in an optimizer, the kernel is an operation under its own
// name. The host time of an operation excludes the operations inside it, so the rows add up.
//
// On a GPU the host only queues kernels. Two events on the stream, before and after each kernel,
// measure its time, including the time between its launch and its first block.
//
// Operations are also spans of the tracer (Category::operation): host time on the thread, and GPU
// time on a separate track per GPU. When the profiler is off, each operation and each kernel costs
// one relaxed load.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/device/stream.hpp"

namespace ringsmith::profile {

struct KernelWork {
  double flop = 0;   // additions, multiplications, comparisons, exp etc. count as one each
  double bytes = 0;  // operand bytes, counted once if read and once if written
};

struct Row {
  std::string name;
  std::int64_t calls = 0;
  std::int64_t host_ns = 0;    // excluding operations inside it
  std::int64_t device_ns = 0;  // of its kernels on GPUs
  KernelWork work;
};

namespace detail {
inline std::atomic<bool> on{false};
}  // namespace detail

[[nodiscard]] inline bool enabled() { return detail::on.load(std::memory_order_relaxed); }
void enable(bool on);

// Waits for the recorded kernels on GPUs and adds their times.
void settle();
// Calls settle(), and returns and clears the rows: longest GPU time first, and longest host time
// first among equal GPU times.
[[nodiscard]] std::vector<Row> take_rows();

// Returns a copy of the name that lives as long as the process.
[[nodiscard]] const char* lasting(const std::string& name);

// The thread's operation until the end of the scope. The name must be a literal or from lasting().
class Operation {
 public:
  explicit Operation(const char* name) {
    if (enabled()) begin(name);
  }
  ~Operation() {
    if (name_ != nullptr) end();
  }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

 private:
  friend class KernelScope;
  void begin(const char* name);
  void end();

  const char* name_ = nullptr;  // null: the profiler was off
  Operation* outer_ = nullptr;
  std::int64_t begin_ns_ = 0;
  std::int64_t inside_ns_ = 0;  // time in operations inside this one
  KernelWork work_;
};

// One kernel on the device's current stream, from begin() to the end of the scope.
class KernelScope {
 public:
  KernelScope() = default;
  ~KernelScope() {
    if (name_ != nullptr) end();
  }
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

  void begin(const char* name, Device device, const KernelWork& work);

 private:
  void end();

  const char* name_ = nullptr;
  bool alone_ = false;  // outside of any operation
  std::int64_t begin_ns_ = 0;
  KernelWork work_;
  Event start_;  // only on a GPU
};

}  // namespace ringsmith::profile
