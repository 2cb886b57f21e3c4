// Errors that kernels have found and the host has not read yet.
//
// A kernel checks every index. If the host waited for each result, every step would drain the
// device twice. Instead, the kernel writes its result to pinned memory, and the host reads it
// later:
//
//   step 1   check ......... forward, backward, optimizer       the host does not wait
//   step 2   look at step 1's; check ...                        "embedding: index 10 at ..."
//
// The host reads a result at the thread's next check and whenever the thread waits for the device
// anyway, in a copy to the host (Tensor::item(), cpu(), Fetch) or in synchronize(). A loss that the
// host reads is therefore never based on a bad index, and a program that reads nothing learns of
// the error one step later. Until the error is reported, the results contain NaN, because kernels
// do not read outside their tables.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device/stream.hpp"

namespace ringsmith::findings {

constexpr unsigned long long kNone = ~0ULL;
constexpr int kBlocks = 32;  // of a check's kernel, at most

// A block of the kernel writes one.
struct Finding {
  unsigned long long position;  // the block's smallest position with an error, or kNone
  std::int64_t value;
};

// Returns the text of the error.
using Say = std::function<std::string(std::uint64_t position, std::int64_t value)>;

struct Check;  // the pinned memory of a result, and its text
using Checks = std::vector<std::shared_ptr<Check>>;

// One check by the calling thread. Construct it before the check's kernel is launched.
class Pending {
 public:
  // Throws what look() throws, except during a capture.
  explicit Pending(Say say);

  // Block b of the kernel writes its result to findings()[b].
  [[nodiscard]] Finding* findings() const;
  // Call it after the kernel has been launched on the current stream.
  void launched();

 private:
  std::shared_ptr<Check> check_;
};

// Throws UsageError for the first completed check that found an error, of this thread or of a
// thread that has ended. Later checks remain.
void look();

// Returns the checks that the calling thread has captured. Their kernels write a result in every
// launch of the graph, into the same pinned memory.
[[nodiscard]] Checks take_captured();
// Call it after each launch of the graph: look() then reads these results, too. A later launch
// does not hide an error, because a block writes only if it finds one. But when look() throws, it
// resets the check: errors of launches that were queued by then may be lost.
void launched(const Checks& checks, const Stream& stream);

}  // namespace ringsmith::findings
