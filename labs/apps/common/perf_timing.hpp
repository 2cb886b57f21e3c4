// One measurement: buffers laid out for a collective, verified, then timed.
#pragma once

#include <memory>

#include "labs/apps/common/perf.hpp"
#include "labs/apps/common/perf_memory.hpp"
#include "labs/apps/common/perf_options.hpp"

namespace ringsmith::apps {

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
