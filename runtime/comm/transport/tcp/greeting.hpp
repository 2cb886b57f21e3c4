// What the caller says first on a new connection: "I am rank 3, and here is your word".
#pragma once

#include <cstdint>

#include "runtime/comm/types/control.hpp"
#include "runtime/comm/transport/word.hpp"

namespace ringsmith::comm::tcp {

// The first bytes on a connection. What must be alike at both ends is compared.
struct Greeting {
  std::uint64_t format = kFormat;
  Word word{};  // the listener's
  std::int32_t rank = -1;
  std::int32_t world = 0;
  std::int32_t socket = 0;  // which of those between the two
  static constexpr std::uint64_t kFormat =
      0x52534d3100000000 | kLanes << 24 | kSlots << 16 | kWireSlotBytes >> 10;
};

}  // namespace ringsmith::comm::tcp
