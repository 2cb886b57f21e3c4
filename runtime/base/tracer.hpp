// The tracer records the activities of each thread with their times in nanoseconds.
//
//   thread A   |--forward--|-------backward-------|~wait~|--optimizer--|
//   thread B                     |==all_reduce==| |==all_reduce==|
//
// A Span records its scope. Each thread writes finished spans to its own ring: one producer (the
// thread), one consumer (drain), two counters, no lock. A full ring drops the new span and counts
// it, so memory is bounded, and only a thread's first event takes a lock. When the tracer is off, a
// Span costs one relaxed load, and threads get no rings.
//
// Times are CLOCK_MONOTONIC, which all processes of a host share. In labs/apps/train, step_time.hpp
// computes exposed communication from the events, and trace_file.hpp writes them for Perfetto.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace ringsmith::trace {

enum class Category : std::uint8_t {
  compute,   // forward and backward arithmetic
  comm,      // a collective in progress, including waiting for peers
  wait,      // this thread waits: for communication, a slot or a peer
  data,      // getting the next batch
  optim,     // the optimizer
  frame,     // encloses others (a step, an evaluation); excluded from the sums
  operation  // one tensor operation, inside the others (runtime/device/profiler.hpp); also excluded
};
[[nodiscard]] const char* name_of(Category category);

// A number attached to a span, e.g. {"bytes", 4096}. The name must be a literal.
struct Arg {
  const char* name = nullptr;
  std::int64_t value = 0;
};

struct FinishedSpan {
  const char* name;  // a literal: only the pointer is kept
  std::int64_t begin_ns;
  std::int64_t end_ns;
  Arg arg;
  std::int32_t thread;  // number of the thread or track. A thread may reuse the number of an
                        // ended thread of the same name whose events have all been drained
  Category category;
};

namespace detail {
inline std::atomic<bool> on{false};
}  // namespace detail

[[nodiscard]] inline bool enabled() { return detail::on.load(std::memory_order_relaxed); }
void enable(bool on);

[[nodiscard]] std::int64_t now_ns();

constexpr std::int32_t kThisThread = -1;
// Records a finished interval of the calling thread, or of a track. No-op while the tracer is off.
void record(const char* name, Category category, std::int64_t begin_ns, std::int64_t end_ns,
            Arg arg = {}, std::int32_t track = kThisThread);

// Adds a row to the trace for activities that run on no thread, such as a GPU's kernels. Returns
// the row's number, to be passed to record() as `track`.
[[nodiscard]] std::int32_t add_track(const std::string& name);

class Span {
 public:
  Span(const char* name, Category category, Arg arg = {})
      : name_(enabled() ? name : nullptr),
        arg_(arg),
        begin_ns_(name_ != nullptr ? now_ns() : 0),
        category_(category) {}
  ~Span() { end(); }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  // Ends the span before its scope does.
  void end() {
    if (name_ != nullptr) record(name_, category_, begin_ns_, now_ns(), arg_);
    name_ = nullptr;
  }

 private:
  const char* name_;
  Arg arg_;
  std::int64_t begin_ns_;
  Category category_;
};

// Names the calling thread. The default is "thread N".
void name_thread(const std::string& name);

// Returns all threads' events since the last drain, sorted by their start.
[[nodiscard]] std::vector<FinishedSpan> drain();

// Returns the names of threads and tracks, indexed by FinishedSpan::thread.
[[nodiscard]] std::vector<std::string> thread_names();

// Returns the number of events lost because rings were full.
[[nodiscard]] std::uint64_t dropped();

// Maximum number of spans per thread between two drains.
constexpr std::uint64_t kRingEvents = 1 << 13;

}  // namespace ringsmith::trace
