// One call of a collective: what all ranks must agree on (Call), this rank's buffers (Transfer),
// and the handle of one that is under way (Work).
//
// A Call is the fingerprint of an operation. It travels as two words, is compared before data
// moves, and can be printed as the call that the user wrote.
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
  int root = -1;            // or the peer, of send and recv
  std::uint64_t count = 0;  // elements, of the buffer that is equally long on all ranks
  bool on_device = false;   // the buffers are in the memory of a GPU

  bool operator==(const Call&) const = default;
  // Everything but the count.
  [[nodiscard]] std::uint64_t pack() const;
  static Call unpack(std::uint64_t packed, std::uint64_t count);
  [[nodiscard]] const char* name() const { return name_of(collective); }
  [[nodiscard]] std::uint64_t bytes() const { return count * size_of(dtype); }
  // Elements of all parts together; count is of one where the collective divides them.
  [[nodiscard]] std::uint64_t work_count(int world) const {
    return contract_of(collective).divides() ? count * static_cast<std::uint64_t>(world) : count;
  }
  [[nodiscard]] bool is_message() const {
    return collective == Collective::send || collective == Collective::recv;
  }
  // "all_reduce(sum, f32, 1024)", "broadcast(f32, 10, root 2, device memory)", "barrier()".
  [[nodiscard]] std::string describe() const;
};

using kernels::Arithmetic;
// A ReduceOp as the kernels know it: avg is a sum of contributions times 1/world.
[[nodiscard]] Arithmetic arithmetic_of(ReduceOp op, int world);

namespace cuda_ipc {
class Operation;  // a call's place in the streams of a device
}

struct Transfer {
  Call call;
  ConstBuffer input;
  Buffer output;
  Site site = {};                                            // of the call, where no buffer says it
  std::uint64_t sequence = 0;                                // given when it runs
  std::shared_ptr<cuda_ipc::Operation> operation = nullptr;  // on device memory

  [[nodiscard]] Site called_at() const {
    if (site.file != nullptr) return site;
    return input.site().file != nullptr ? input.site() : output.site();
  }
};

// Operations of a group run in the order of their calls, on the group's communication thread;
// wait() returns when this one is done and rethrows what went wrong in it. On device memory "done"
// is a matter of streams: see runtime/comm/process_group.hpp.
class Work {
 public:
  virtual ~Work() = default;
  [[nodiscard]] virtual bool is_completed() const = 0;
  // Later work of this thread (on its current stream, where the buffers are on a device) sees the
  // result.
  virtual void wait() = 0;
  // The host itself sees the result.
  virtual void host_wait() { wait(); }
};

using WorkPtr = std::shared_ptr<Work>;

}  // namespace ringsmith::comm
