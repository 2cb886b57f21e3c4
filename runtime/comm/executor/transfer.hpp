// One call, ready to be executed: what all ranks agree on, and this rank's buffers.
#pragma once

#include <memory>

#include "runtime/comm/buffer.hpp"
#include "runtime/comm/call.hpp"

namespace ringsmith::comm {

namespace cuda_ipc {
class Operation;
}

struct Transfer {
  Call call;
  std::uint64_t sequence = 0;  // given when it runs
  ConstBuffer input;
  Buffer output;
  Site site = {};  // of the call, where no buffer says it
  std::shared_ptr<cuda_ipc::Operation> operation =
      nullptr;  // on device memory: its place in the streams

  [[nodiscard]] Site called_at() const {
    if (site.file != nullptr) return site;
    return input.site().file != nullptr ? input.site() : output.site();
  }
};

}  // namespace ringsmith::comm
