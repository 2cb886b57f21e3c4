// The tracer: who did what from when to when, in nanoseconds, on every thread.
//
//   thread A   |--forward--|-------backward-------|~wait~|--optimizer--|
//   thread B                     |==all_reduce==| |==all_reduce==|
//
// A Span stamps its scope. Each thread writes finished spans into a ring of its own: one producer
// (the thread), one consumer (drain), two counters, no lock; the same handshake as everywhere in
// this house. A full ring drops the new span and counts it, so memory is bounded and recording
// never waits. Switched off, a Span costs one relaxed load, and threads have no rings.
//
// Stamps are CLOCK_MONOTONIC: all processes of one host share it. labs/apps/train/step_time.hpp
// computes exposed communication from the events, trace_file.hpp there writes them for Perfetto.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace ringsmith::trace {

enum class Category : std::uint8_t {
  compute,   // forward and backward arithmetic
  comm,      // a collective in progress, waiting for peers included
  wait,      // this thread waits: for communication, for a slot, for a peer
  data,      // getting the next batch
  optim,     // the optimizer
  frame,     // encloses others (a step, an evaluation); takes no part in the arithmetic
  operation  // one tensor operation, inside the others (runtime/device/profiler.hpp); nor does it
};
[[nodiscard]] const char* name_of(Category category);

// A number that travels with a span, for instance {"bytes", 4096}. The name must be a literal.
struct Arg {
  const char* name = nullptr;
  std::int64_t value = 0;
};

struct Event {
  const char* name;  // a literal: only the pointer is kept
  std::int64_t begin_ns;
  std::int64_t end_ns;
  Arg arg;
  std::int32_t thread;  // small number, in order of each thread's first event; when a thread has
                        // ended and been drained, the next one of its name gets its number
  Category category;
};

namespace detail {
inline std::atomic<bool> on{false};
}  // namespace detail

[[nodiscard]] inline bool enabled() { return detail::on.load(std::memory_order_relaxed); }
void enable(bool on);

[[nodiscard]] std::int64_t now_ns();

constexpr std::int32_t kThisThread = -1;
// Records a finished interval of the calling thread, or of a track; nothing happens while the
// tracer is off.
void record(const char* name, Category category, std::int64_t begin_ns, std::int64_t end_ns,
            Arg arg = {}, std::int32_t track = kThisThread);

// A row of the trace for what runs on no thread, such as the kernels of a GPU: its number in place
// of a thread's.
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

  // Ends the span before its scope does; later calls do nothing.
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

// The calling thread's name in the trace; "thread N" without it.
void name_thread(const std::string& name);

// Takes the events finished since the last drain, of all threads, ordered by begin.
[[nodiscard]] std::vector<Event> drain();

// Names by Event::thread.
[[nodiscard]] std::vector<std::string> thread_names();

// Events lost to full rings since the start of the process.
[[nodiscard]] std::uint64_t dropped();

// Spans that one thread can finish between two drains.
constexpr std::uint64_t kRingEvents = 1 << 13;

}  // namespace ringsmith::trace
