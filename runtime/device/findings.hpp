// What kernels have found wrong, and the host has yet to hear.
//
// A kernel looks at every index. Were the host to wait for what it says, each step would drain the
// device twice: so the kernel writes into pinned memory, and the host looks there when it comes by,
//
//   step 1   check ......... forward, backward, optimizer       the host goes on at once
//   step 2   look at 1's; check ...                             "embedding: index 10 at ..."
//
// at the thread's next check, and whenever it waits for the device anyway: a copy to the host
// (Tensor::item(), cpu()) and synchronize(). So a loss that is read never comes from a bad index,
// and whoever reads nothing is told a step later. Until then results hold NaN: kernels read nothing
// outside of their tables.
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
  unsigned long long position;  // the smallest that is wrong, or kNone
  std::int64_t value;           // what stands there
};

// The error's text.
using Say = std::function<std::string(std::uint64_t position, std::int64_t value)>;

// One check of the calling thread's, while it is put on the current stream.
class Pending {
 public:
  // Throws what earlier checks have found by now.
  explicit Pending(Say say);

  // Where the kernels write.
  [[nodiscard]] Finding* finding() const;
  // They are on the current stream.
  void launched();

 private:
  Say say_;
  std::unique_ptr<PinnedBlock> block_;
};

// UsageError if a check of the calling thread's, or of a thread that has ended, is done and has
// found something; it is forgotten then. The others stay.
void look();

}  // namespace ringsmith::findings
