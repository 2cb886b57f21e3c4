// One call, ready to be executed: what all ranks agree on, and this rank's buffers.
#pragma once

#include "runtime/comm/buffer.hpp"
#include "runtime/comm/call.hpp"

namespace ringsmith::comm {

struct Transfer {
  Call call;
  std::uint64_t sequence = 0;  // given when it runs
  ConstBuffer input;
  Buffer output;
};

}  // namespace ringsmith::comm
