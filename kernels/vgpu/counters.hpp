// Counts of kernel launches, copies and fills, by name. Time means nothing on the emulator, but a
// step launches exactly these kernels on a GPU, too. A kernel whose grid has one block leaves all
// but one of a GPU's multiprocessors idle.
//
// With VGPU_COUNTERS=1 the process prints the table to standard error when it ends. The emulator
// does not see a kernel's loads and stores. It counts the bytes of copies and fills; the profiler
// (runtime/device/profiler.hpp) computes those of kernels from their operands.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/vgpu/api/launch.hpp"

namespace vgpu {

struct Count {
  std::string name;          // the kernel's, "copy" or "fill"
  std::uint64_t runs = 0;    // a launch of a captured graph counts each of its operations
  std::uint64_t bytes = 0;   // of copies and fills
  std::uint64_t blocks = 0;  // of the smallest grid of a kernel's launches
};

// Called on the stream's worker when the operation runs.
void count_launch(const Call& call, std::uint64_t blocks);
void count_bytes(const char* operation, std::size_t bytes);

// Returns and clears the counts, most runs first. Streams must have been synchronised.
[[nodiscard]] std::vector<Count> take_counts();

// The host's calls that queue work on streams, each of which costs it microseconds on a GPU. The
// launch of a graph is one call, and its operations are in Count only.
struct Calls {
  std::uint64_t kernels = 0, copies = 0, graphs = 0;  // copies and fills
};
struct CallCounters {
  std::atomic<std::uint64_t> kernels{0}, copies{0}, graphs{0};
};
[[nodiscard]] CallCounters& call_counters();
// Returns and clears the counts.
[[nodiscard]] Calls take_calls();

}  // namespace vgpu
