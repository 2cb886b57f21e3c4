// Lab 09: DistributedDataParallel.
//
// Each rank has the model, and its own part of the batch. Backward computes the gradients from the
// last layer to the first; you average them over the ranks while backward is still running:
//
//   backward      g5 g4 g3 | g2 g1 | g0 |
//   bucket 0      [======] --- all-reduce --->
//   bucket 1               [===] ----- all-reduce ----->
//   bucket 2                     [==]        --- all-reduce -->|
//
// The model and the all-reduce are given: any model with hooks, and any group whose all-reduce runs
// concurrently with the computation (labs/kit/training.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "labs/kit/todo.hpp"
#include "labs/kit/training.hpp"

namespace lab09 {

// Task 1. Groups gradients into buckets. bytes[i] is the size of gradient i, in the order in which
// gradients are laid out. Append one after another to the open bucket; close it as soon as it holds
// `limit` bytes or more. No gradient is ever split. Returns the buckets, each a list of indices i.
// (400 800 400 200, limit 400) -> [0] [1] [2] [3]
inline std::vector<std::vector<int>> plan_buckets(const std::vector<std::size_t>& bytes,
                                                  std::size_t limit) {
#ifdef SOLUTION
  std::vector<std::vector<int>> buckets;
  std::size_t filled = 0;
  bool open = false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (!open) buckets.emplace_back();
    buckets.back().push_back(int(i));
    filled = (open ? filled : 0) + bytes[i];
    open = filled < limit;
  }
  return buckets;
#else
  (void)bytes, (void)limit;
  kit::todo("task 1, plan_buckets");
#endif
}

// The arguments determine both types: DistributedDataParallel ddp(model, group, 64).
template <kit::HookedModel Model, kit::AsyncGroup Group>
class DistributedDataParallel {
  using Tensor = kit::ParameterOf<Model>;  // tensor->value, ->grad, ->requires_grad
  using Work = kit::WorkOf<Group>;

 public:
  // Task 2. Broadcast rank 0's values of all parameters. Plan the buckets for the parameters that
  // will get a gradient: each parameter once (a tied one at its first place), in reverse order,
  // because gradients arrive in about that order. Register hooks that call gradient_is_complete and
  // backward_is_over. model and group outlive this object; bucket_bytes is the limit of task 1.
  DistributedDataParallel(Model& model, Group& group, std::size_t bucket_bytes) : group_(group) {
#ifdef SOLUTION
    std::vector<Tensor> seen;
    for (const Tensor& parameter : model.parameters()) {
      if (std::find(seen.begin(), seen.end(), parameter) != seen.end()) continue;  // tied
      seen.push_back(parameter);
      group.broadcast(parameter->value, 0);
      if (parameter->requires_grad) slots_.push_back({parameter, 0, 0, false});
    }
    std::reverse(slots_.begin(), slots_.end());
    std::vector<std::size_t> bytes;
    for (const Slot& slot : slots_) bytes.push_back(slot.parameter->value.size() * sizeof(float));
    for (const std::vector<int>& members : plan_buckets(bytes, bucket_bytes)) {
      Bucket bucket;
      std::size_t length = 0;
      for (const int i : members) {
        Slot& slot = slots_[std::size_t(i)];
        slot.bucket = buckets_.size();
        slot.offset = length;
        length += slot.parameter->value.size();
      }
      bucket.data.resize(length);
      bucket.members = bucket.missing = members.size();
      buckets_.push_back(bucket);
    }
    for (std::size_t i = 0; i < slots_.size(); ++i)
      model.on_gradient(slots_[i].parameter, [this, i] { gradient_is_complete(i); });
    model.on_backward_end([this] { backward_is_over(); });
#else
    (void)model, (void)group, (void)bucket_bytes;
    kit::todo("task 2, the constructor");
#endif
  }
  // Not copyable, because the hooks hold `this`.
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // Task 5. Runs body(), in which no backward communicates: gradients stay local. When body returns
  // or throws, restores the state from before the call. Calls may be nested.
  template <class Body>
  void no_sync(Body&& body) {
#ifdef SOLUTION
    struct Restore {
      bool& flag;
      bool before;
      ~Restore() { flag = before; }
    };
    const Restore restore{synchronising_, synchronising_};
    synchronising_ = false;
    body();
#else
    (void)body;
    kit::todo("task 5, no_sync");
#endif
  }

 private:
  // A parameter that gets gradients, and its position in a bucket.
  struct Slot {
    Tensor parameter;
    std::size_t bucket = 0;
    std::size_t offset = 0;
    bool ready = false;  // in this backward
  };
  struct Bucket {
    std::vector<float> data;
    std::size_t members = 0;
    std::size_t missing = 0;  // gradients not yet complete in this backward
    std::optional<Work> work;
  };

  // Task 3. Called by the hook of a parameter: copies its gradient into its bucket, and starts the
  // all-reduce of every bucket that may start. All ranks must start the all-reduces in the same
  // order, although their gradients arrive in different orders.
  void gradient_is_complete(std::size_t slot) {
#ifdef SOLUTION
    if (!synchronising_) return;
    fill(slots_[slot]);
    start_full_buckets();
#else
    (void)slot;
    kit::todo("task 3, gradient_is_complete");
#endif
  }

  // Task 4. Called when backward has no more gradients. A parameter without a gradient in this
  // backward contributes its old .grad, or zeros if .grad is empty, so that no rank waits for the
  // parameter. When this returns, .grad is the average over the ranks, with the same bits on all. A
  // parameter whose .grad was empty on every rank keeps it empty. One more all-reduce is allowed
  // for the flags.
  void backward_is_over() {
#ifdef SOLUTION
    if (!synchronising_) return;
    std::vector<float> used;
    for (Slot& slot : slots_) {
      used.push_back(slot.parameter->grad.empty() ? 0.0F : 1.0F);
      if (!slot.ready) fill(slot);
    }
    start_full_buckets();
    Work last = group_.all_reduce(used);
    for (Bucket& bucket : buckets_) {
      bucket.work->wait();
      bucket.missing = bucket.members;
    }
    last.wait();
    next_ = 0;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[i];
      slot.ready = false;
      if (used[i] == 0.0F) continue;
      const auto first = buckets_[slot.bucket].data.begin() + std::ptrdiff_t(slot.offset);
      slot.parameter->grad.assign(first, first + std::ptrdiff_t(slot.parameter->value.size()));
    }
#else
    kit::todo("task 4, backward_is_over");
#endif
  }
#ifdef SOLUTION

  // Divides before the sum, so that a sum of large gradients does not overflow.
  void fill(Slot& slot) {
    Bucket& bucket = buckets_[slot.bucket];
    const std::vector<float>& grad = slot.parameter->grad;
    for (std::size_t i = 0; i < slot.parameter->value.size(); ++i)
      bucket.data[slot.offset + i] = grad.empty() ? 0.0F : grad[i] / float(group_.world());
    slot.ready = true;
    --bucket.missing;
  }

  // Starts buckets in order, whatever the order of the gradients on this rank.
  void start_full_buckets() {
    for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_)
      buckets_[next_].work = group_.all_reduce(buckets_[next_].data);
  }
#endif

  Group& group_;
  std::vector<Slot> slots_;      // in the order of task 2
  std::vector<Bucket> buckets_;  // in the order in which they start
  std::size_t next_ = 0;         // the first bucket that has not been started
  bool synchronising_ = true;
};

}  // namespace lab09
