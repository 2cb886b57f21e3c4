// The random word of a rank, by which members of a job know each other on the sockets between them.
//
// Each rank draws one for each group and says it in the bootstrap's exchange, which only members of
// the job hear. A caller first shows the rank's word; one that cannot is a stranger.
// Over TCP that is all that keeps strangers out; between ranks of a host the kernel says besides
// whose process is at the other end (shm/greeting.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <random>

namespace ringsmith::comm {

using Word = std::array<std::uint64_t, 2>;

// From the kernel's generator, or the processor's.
[[nodiscard]] inline Word random_word() {
  std::random_device random;
  const auto half = [&random] { return std::uint64_t{random()} << 32 | random(); };
  return {half(), half()};
}

}  // namespace ringsmith::comm
