// AccumulateGrad, the node that adds a gradient to a leaf's .grad, and the gradient state of a
// tensor.
//
//   .grad undefined, no target    the incoming tensor itself if it can be kept as is; else a copy
//   .grad undefined, target set   written into the target, and .grad becomes the target
//   .grad defined                 .grad += incoming, in place: a view of a bucket stays that view
//
// If a leaf is used several times in one backward, its gradients are summed first, and .grad is
// modified once, before the hooks run.
//
// The target lets DistributedDataParallel collect gradients in its buckets without an extra copy:
// each leaf's target is its slice of a bucket. zero_grad(set_to_none) makes .grad undefined, and
// the next backward fills the bucket again.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "runtime/autograd/node.hpp"

namespace ringsmith {

class AccumulateGrad : public Node {
 public:
  explicit AccumulateGrad(Tensor leaf);
  std::vector<Tensor> apply(std::vector<Tensor> grads) override;
  [[nodiscard]] std::string name() const override { return "AccumulateGrad"; }
  [[nodiscard]] const Tensor& leaf() const { return leaf_; }

 private:
  void accumulate(Tensor grad) const;
  Tensor leaf_;
};

// The first gradient that arrives while .grad is undefined is written to `view`, and `view` becomes
// .grad. `view` must be contiguous and have the leaf's shape, dtype and device (UsageError). An
// undefined view clears the target. A defined .grad is left unchanged.
void set_grad_target(const Tensor& leaf, const Tensor& view);

// For functions that can write a gradient directly to its destination (a GEMM with beta = 0 or 1).
// Called inside apply(), returns the destination of the gradient along `edge` if no other function
// contributes to it in this backward. The function must write the gradient there (add to it if
// `accumulate`) and return exactly this tensor for the edge; AccumulateGrad then does not copy. If
// the tensor is undefined, the function returns a new one.
struct GradDestination {
  Tensor tensor;
  bool accumulate = false;
};
[[nodiscard]] GradDestination grad_destination(const Edge& edge);

}  // namespace ringsmith

// ---- the gradient state of a tensor (for the files of runtime/autograd only) ----
namespace ringsmith::autograd {

struct LeafHook {
  HookHandle handle;
  HookTurn turn;
  std::function<void(const Tensor&)> call;
};

// Either a leaf (requires_grad, no grad_fn) or the result of an operation (grad_fn).
//
//   leaf Tensor --strong--> GradMeta --weak--> AccumulateGrad --strong--> leaf Tensor
//   result Tensor --strong--> GradMeta --strong--> grad_fn --edges, strong--> earlier nodes
//
// There is no cycle, so a graph exists as long as a handle to any of its results exists.
struct GradMeta : AutogradMeta {
  bool requires_grad = false;
  Tensor grad;
  Tensor grad_target;  // destination of the first gradient
  std::weak_ptr<Node> accumulator;
  std::vector<LeafHook> hooks;
  bool step_skipped = false;  // since the last backward
  double loss_scale = 0;

  std::shared_ptr<Node> grad_fn;
  int output = 0;  // index among grad_fn's outputs
};

inline GradMeta* meta_of(const Tensor& t) {
  return t.defined() ? static_cast<GradMeta*>(t.autograd_meta().get()) : nullptr;
}
GradMeta& meta_or_new(const Tensor& t);

// Throws a UsageError naming shapes, dtypes and devices unless `other` (named `what`) matches t.
void require_fits(const Tensor& t, const Tensor& other, const char* what);

// The edge to the grad_fn of t or the accumulator of a leaf; empty if there is none.
[[nodiscard]] Edge gradient_edge(const Tensor& t);

// Ready accumulators precede all other nodes.
constexpr std::uint64_t kAccumulateSequence = std::numeric_limits<std::uint64_t>::max();

}  // namespace ringsmith::autograd
