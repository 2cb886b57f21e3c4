// Errors that kernels have found and that the host has not read yet.
//
// A kernel checks every index. If the host waited for the result, each step would drain the device
// twice. Instead, the kernel writes its result to pinned memory, and the host reads it later,
//
//   step 1   check ......... forward, backward, optimizer       the host does not wait
//   step 2   look at step 1's; check ...                        "embedding: index 10 at ..."
//
// at the thread's next check, and whenever the thread waits for the device anyway: in a copy to the
// host (Tensor::item(), cpu()) and in synchronize(). So a loss that is read never comes from a bad
// index, and a program that reads nothing is told a step later. Until then results contain NaN,
// because kernels do not read outside of their tables.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/device/stream.hpp"
#include "runtime/device/transfer.hpp"

namespace ringsmith::findings {

constexpr unsigned long long kNone = ~0ULL;

// In pinned memory.
struct Finding {
  unsigned long long position;  // smallest position with an error, or kNone
  std::int64_t value;           // the value there
};

// Returns the text of the error.
using Say = std::function<std::string(std::uint64_t position, std::int64_t value)>;

// One check by the calling thread, from before its kernels are launched on the current stream.
class Pending {
 public:
  // Throws errors that earlier checks have found by now.
  explicit Pending(Say say);

  // The kernels write their result here.
  [[nodiscard]] Finding* finding() const;
  // Call when the kernels have been launched on the current stream.
  void launched();

 private:
  Say say_;
  std::unique_ptr<PinnedBlock> block_;
};

// Throws UsageError if a check of the calling thread, or of a thread that has ended, is done and
// has found an error, and removes this check. The others remain.
void look();

}  // namespace ringsmith::findings
