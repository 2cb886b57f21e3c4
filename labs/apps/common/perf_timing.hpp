// One measurement: buffers laid out for a collective, verified, then timed.
#pragma once

#include <memory>

#include "labs/apps/common/perf.hpp"
#include "labs/apps/common/perf_options.hpp"

namespace ringsmith::apps {

// Two blocks of memory, of the kind asked for, each with guard words on both sides.
class PerfMemory {
 public:
  PerfMemory(comm::ProcessGroup& group, bool own, std::size_t bytes, bool two);
  [[nodiscard]] std::byte* first() const { return first_ + kGuard; }
  [[nodiscard]] std::byte* second() const { return second_ + kGuard; }
  static constexpr std::size_t kGuard = 64;  // bytes

 private:
  std::byte* make(comm::ProcessGroup& group, bool own, std::size_t bytes);
  std::vector<std::shared_ptr<void>> keep_;
  std::byte *first_ = nullptr, *second_ = nullptr;
};

struct Measurement {
  double time = 0, avg = 0, min = 0, max = 0, p99 = 0;  // microseconds
  double cv = 0;                                        // standard deviation / mean, percent
  double algbw = 0, busbw = 0;                          // GB/s
  int iterations = 0;
  std::int64_t wrong = -1;  // -1: not checked
};

struct Shape {
  std::size_t part = 0;  // elements
  DType dtype = DType::f32;
  comm::ReduceOp op = comm::ReduceOp::sum;
  int root = 0;
};

// Bytes of the longest buffer of a rank.
[[nodiscard]] std::size_t bytes_of_shape(const Benchmark& benchmark, const Shape& shape, int world);

// Collective; the same numbers on every rank.
[[nodiscard]] Measurement measure(const Benchmark& benchmark, const PerfOptions& options,
                                  comm::ProcessGroup& group, const PerfMemory& memory,
                                  const Shape& shape, bool in_place);

}  // namespace ringsmith::apps
