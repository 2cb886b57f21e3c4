// One call of a collective: the values that all ranks must agree on (Call), this rank's buffers
// (Transfer), and the handle of the operation in flight (Work).
//
// Ranks exchange a Call as two 64-bit words and compare it. Errors quote its describe().
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/reduce.hpp"
#include "runtime/comm/types/buffer.hpp"
#include "runtime/comm/types/collective.hpp"

namespace ringsmith::comm {

struct Call {
  Collective collective = Collective::none;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::u8;
  Algorithm algorithm = Algorithm::automatic;
  int root = -1;            // or the peer of send and recv
  std::uint64_t count = 0;  // elements of the buffer that has the same length on all ranks
  bool on_device = false;   // the buffers are in the memory of a GPU

  bool operator==(const Call&) const = default;
  // Packs everything but the count into 64 bits.
  [[nodiscard]] std::uint64_t pack() const {
    return static_cast<std::uint64_t>(collective) | static_cast<std::uint64_t>(op) << 8 |
           static_cast<std::uint64_t>(dtype) << 16 | static_cast<std::uint64_t>(algorithm) << 24 |
           static_cast<std::uint64_t>(on_device) << 31 | static_cast<std::uint64_t>(root + 1) << 32;
  }
  static Call unpack(std::uint64_t packed, std::uint64_t count) {
    Call call;
    call.collective = static_cast<Collective>(packed & 0xff);
    call.op = static_cast<ReduceOp>(packed >> 8 & 0xff);
    call.dtype = static_cast<DType>(packed >> 16 & 0xff);
    call.algorithm = static_cast<Algorithm>(packed >> 24 & 0x7f);
    call.on_device = (packed >> 31 & 1) != 0;
    call.root = static_cast<int>(packed >> 32) - 1;
    call.count = count;
    return call;
  }
  [[nodiscard]] const char* name() const { return name_of(collective); }
  [[nodiscard]] std::uint64_t bytes() const { return count * size_of(dtype); }
  // Returns the number of elements of all parts together; count may cover only one part.
  [[nodiscard]] std::uint64_t work_count(int world) const {
    return contract_of(collective).divides() ? count * static_cast<std::uint64_t>(world) : count;
  }
  [[nodiscard]] bool is_message() const {
    return collective == Collective::send || collective == Collective::recv;
  }
  // Returns e.g. "broadcast(f32, 10, root 2, device memory)".
  [[nodiscard]] std::string describe() const;
};

using kernels::Arithmetic;
// For the kernels, avg is a sum of contributions times 1/world.
[[nodiscard]] inline Arithmetic arithmetic_of(ReduceOp op, int world) {
  using kernels::Reduction;
  switch (op) {
    case ReduceOp::avg:
      return {Reduction::sum, true, 1.0 / world};
    case ReduceOp::prod:
      return {Reduction::prod};
    case ReduceOp::min:
      return {Reduction::min};
    case ReduceOp::max:
      return {Reduction::max};
    default:
      return {};
  }
}

namespace cuda_ipc {
class DeviceOperation;  // a call's position in the streams of a device
}

struct Transfer {
  Call call;
  ConstBuffer input;
  Buffer output;
  Site site = {};              // where the call was made, if it has no buffers
  int averaged_over = 0;       // avg divides by this number of ranks; 0: by the group's size
  std::uint64_t sequence = 0;  // the call's number, assigned when it runs
  std::shared_ptr<cuda_ipc::DeviceOperation> operation = nullptr;  // null for host memory

  [[nodiscard]] Arithmetic arithmetic(int world) const {
    return arithmetic_of(call.op, averaged_over > 0 ? averaged_over : world);
  }
  [[nodiscard]] Site called_at() const {
    if (site.file != nullptr) return site;
    return input.site().file != nullptr ? input.site() : output.site();
  }
};

// The handle of an operation. wait() returns when the operation is done, and rethrows its error. On
// device memory, "done" refers to streams (runtime/comm/process_group.hpp).
class Work {
 public:
  virtual ~Work() = default;
  [[nodiscard]] virtual bool is_completed() const = 0;
  // Later work of this thread (for device buffers: on its current stream) sees the result.
  virtual void wait() = 0;
  // Like wait(), but the host sees the result, too.
  virtual void host_wait() { wait(); }
};

using WorkPtr = std::shared_ptr<Work>;

}  // namespace ringsmith::comm
