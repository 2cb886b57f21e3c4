// Communication hooks: what the ranks exchange for a bucket, instead of DDP's all-reduce.
//
//   backward   g5 g4 g3 | g2 g1 | g0 |
//   bucket 0   [======] hook(bucket 0) --> future ..................> result replaces bucket 0
//   bucket 1            [===] hook(bucket 1) --> future ............> result replaces bucket 1
//
// A hook gets a full bucket of this rank's gradients, starts its exchange and returns a Future;
// what the future gives becomes the bucket. With a hook DDP does not divide by the number of ranks:
// the hook must, or the gradients are W times too large.
//
//   ddp.register_comm_hook(fp16_compress_hook(group));
//   ddp.register_comm_hook(group, my_hook, "my_hook");   // calls my_hook(group, bucket)
//
// PyTorch's interface (torch.distributed.algorithms.ddp_comm_hooks). Hooks are called in the order
// of the buckets, and their futures are waited for in that order when all have been called: the
// collectives of a hook come in one order on every rank, also those that it goes on with in then().
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/process_group.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

struct GradBucket {
  int index = 0;                  // another set of gradients after DDP has rebuilt the buckets
  bool is_last = false;           // of this backward
  Tensor buffer;                  // all gradients, one after the other; communication memory
  std::vector<Tensor> gradients;  // views of it, each of its parameter's shape
  std::vector<Tensor> parameters;
};

// A tensor that will be there. Waited for once.
class Future {
 public:
  Future(Tensor value)  // NOLINT(google-explicit-constructor): a hook may be done already
      : wait_([value = std::move(value)] { return value; }) {}
  // The tensor that the work writes.
  Future(comm::WorkPtr work, Tensor value);
  explicit Future(std::function<Tensor()> wait) : wait_(std::move(wait)) {}

  // What `next` makes of the tensor: a tensor, or another future. It runs on the thread that waits.
  [[nodiscard]] Future then(std::function<Future(const Tensor&)> next) const;
  [[nodiscard]] Tensor wait() const { return wait_(); }

 private:
  std::function<Tensor()> wait_;
};

struct CommHook {
  std::string name;  // for messages and logging data
  std::function<Future(const GradBucket&)> call;
  // The step of the last backward's gradients is skipped (Optimizer::skip, by GradScaler). The hook
  // must restore the state that it had before that backward, or infinity and NaN stay in the state
  // for good. Called on every rank, before the next backward, once. Empty for a hook that keeps
  // nothing.
  std::function<void()> skipped = nullptr;
};

// The hook's work on one bucket: wait() puts the result into it. A result that does not fit (shape,
// dtype, device) leaves the bucket as it is and is described in `fault`, which must outlive it: a
// rank alone must not throw while its peers go on.
[[nodiscard]] comm::WorkPtr run_hook(const CommHook& hook, GradBucket bucket, std::string& fault);

// ---- the built-in hooks ----
// Divides by the number of ranks, then sums: what DDP does without a hook, but for a true division.
[[nodiscard]] CommHook allreduce_hook(std::shared_ptr<comm::ProcessGroup> group);
// The same in 16 bits, half the bytes: rounded, divided, summed with a rounding after each
// addition, and put back into the gradients' dtype. f16 has 11 bits and overflows at 65520; bf16
// has 8 bits and the range of f32.
[[nodiscard]] CommHook fp16_compress_hook(std::shared_ptr<comm::ProcessGroup> group);
[[nodiscard]] CommHook bf16_compress_hook(std::shared_ptr<comm::ProcessGroup> group);
// No communication: each rank keeps its own gradients. For measuring what communication costs.
[[nodiscard]] CommHook noop_hook();
// PowerSGD: power_sgd.hpp.

// ---- for authors of hooks ----
// All-reduces a contiguous tensor in place; through the host if the group cannot reach its device.
[[nodiscard]] Future all_reduce(const std::shared_ptr<comm::ProcessGroup>& group,
                                const Tensor& data, comm::ReduceOp op);

// Tensors to send from, by number: made once, in memory from which the group sends without a copy.
class TravelTensors {
 public:
  explicit TravelTensors(std::shared_ptr<comm::ProcessGroup> group) : group_(std::move(group)) {}
  // Of one dimension; another tensor than last time only if count, dtype or device changed.
  [[nodiscard]] Tensor get(int number, std::int64_t count, TensorOptions options);

 private:
  std::shared_ptr<comm::ProcessGroup> group_;
  std::map<int, Tensor> tensors_;
};

}  // namespace ringsmith
