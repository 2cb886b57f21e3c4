// Communication hooks: functions that exchange a bucket's gradients instead of DDP's all-reduce.
//
//   backward   g5 g4 g3 | g2 g1 | g0 |
//   bucket 0   [======] hook(bucket 0) --> future ..................> result replaces bucket 0
//   bucket 1            [===] hook(bucket 1) --> future ............> result replaces bucket 1
//
// A hook receives a full bucket of this rank's gradients, starts its exchange and returns a Future,
// whose tensor replaces the bucket. With a hook, DDP does not divide by the number of ranks W: the
// hook must do so, or the gradients are W times too large.
//
//   ddp.register_comm_hook(fp16_compress_hook(group));
//   ddp.register_comm_hook(group, my_hook, "my_hook");   // calls my_hook(group, bucket)
//
// The interface is PyTorch's (torch.distributed.algorithms.ddp_comm_hooks). Hooks are called in
// bucket order. Their futures are waited for in the same order, once all hooks have been called.
// Thus a hook's collectives, including those in then(), run in the same order on every rank.
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
  int index = 0;                  // after a rebuild, the same index refers to other gradients
  bool is_last = false;           // in this backward
  Tensor buffer;                  // all gradients, concatenated; communication memory
  std::vector<Tensor> gradients;  // views of `buffer` with the parameters' shapes
  std::vector<Tensor> parameters;
  // GradScaler's factor in these gradients; 0 without a scaler. When the factor changes, a hook
  // that keeps parts of gradients must multiply these parts by new / old.
  double loss_scale = 0;
};

// A tensor that will be available later. wait() may be called once.
class Future {
 public:
  Future(Tensor value)  // NOLINT(google-explicit-constructor): the result may be ready
      : wait_([value = std::move(value)] { return value; }) {}
  // Completes with `value`, the tensor that the work writes.
  Future(comm::WorkPtr work, Tensor value);
  explicit Future(std::function<Tensor()> wait) : wait_(std::move(wait)) {}

  // Returns a future whose wait() calls next(tensor) on the calling thread. next() returns a tensor
  // or another future.
  [[nodiscard]] Future then(std::function<Future(const Tensor&)> next) const;
  [[nodiscard]] Tensor wait() const { return wait_(); }

 private:
  std::function<Tensor()> wait_;
};

struct CommHook {
  std::string name;  // for messages and logging data
  std::function<Future(const GradBucket&)> call;
  // Called if the optimizer step for the last backward is skipped (Optimizer::skip, e.g. by
  // GradScaler). The hook must restore its state from before that backward, or infinities and NaNs
  // would remain in it. Called at most once per backward, on every rank, before the next backward.
  // Null for a hook without state.
  std::function<void()> skipped = nullptr;
};

// Starts the hook's work on one bucket; wait() stores the result in the bucket. If the result has
// the wrong shape, dtype or device, wait() leaves the bucket unchanged and describes the error in
// `fault`: one rank must not throw while its peers continue. `fault` must outlive the work.
[[nodiscard]] comm::WorkPtr run_hook(const CommHook& hook, GradBucket bucket, std::string& fault);

// ---- the built-in hooks ----
// Divides each gradient by the world size W, then sums. Without a hook, DDP multiplies it by 1 / W.
[[nodiscard]] CommHook allreduce_hook(std::shared_ptr<comm::ProcessGroup> group);
// An average in 16 bits, with half the bytes of f32: rounds, multiplies by 1 / W, sums with a
// rounding after each addition, and converts back to the gradients' dtype. f16 has 11 significant
// bits and overflows at 65520; bf16 has 8 significant bits and the range of f32.
[[nodiscard]] CommHook fp16_compress_hook(std::shared_ptr<comm::ProcessGroup> group);
[[nodiscard]] CommHook bf16_compress_hook(std::shared_ptr<comm::ProcessGroup> group);
// No communication: each rank keeps its own gradients. Meant for measuring the cost of
// communication.
[[nodiscard]] CommHook noop_hook();
// PowerSGD: beyond/power_sgd.hpp.

// ---- for authors of hooks ----
// All-reduces a contiguous tensor in place, through the host if necessary.
[[nodiscard]] Future all_reduce(const std::shared_ptr<comm::ProcessGroup>& group,
                                const Tensor& data, comm::ReduceOp op);

// Numbered send buffers, in memory from which the group sends without a copy, if it can access the
// device.
class TravelTensors {
 public:
  explicit TravelTensors(std::shared_ptr<comm::ProcessGroup> group) : group_(std::move(group)) {}
  // Allocates only if count, dtype or device has changed.
  [[nodiscard]] Tensor get(int number, std::int64_t count, TensorOptions options);

 private:
  std::shared_ptr<comm::ProcessGroup> group_;
  std::map<int, Tensor> tensors_;
};

}  // namespace ringsmith
