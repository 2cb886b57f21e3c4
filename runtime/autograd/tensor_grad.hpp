// The end of the graph, adding a gradient into a leaf's .grad, and what hangs on a tensor for it.
//
//   .grad undefined, no target    the incoming tensor itself, if nobody else holds it; else a copy
//   .grad undefined, target set   written into the target, and .grad becomes the target
//   .grad defined                 .grad += incoming, in place: a view into a bucket stays that view
//
// If a leaf is used several times in one backward, its contributions are summed first, and .grad is
// touched once. Then the hooks run.
//
// The target is how DistributedDataParallel gets gradients into its buckets without an extra copy:
// it sets the leaf's slice of the bucket as the target once; zero_grad(set_to_none) then makes
// .grad undefined, and the next backward fills the bucket again.
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

// The first gradient that arrives while .grad is undefined is put into view, which then is .grad.
// view: contiguous, of the leaf's shape and dtype, else UsageError; undefined takes the target
// away. A .grad that is defined is left where it is.
void set_grad_target(const Tensor& leaf, const Tensor& view);

// For functions that can write a gradient straight to where it will live (a GEMM with beta = 0 or
// 1): inside apply(), the place for the gradient that flows along `edge`, if this function is the
// only contributor of this backward. Write it (accumulate: add to it) and return exactly this
// tensor for the edge; AccumulateGrad then leaves it alone. Undefined tensor: no such place, return
// a fresh one as usual.
struct GradDestination {
  Tensor tensor;
  bool accumulate = false;
};
[[nodiscard]] GradDestination grad_destination(const Edge& edge);

}  // namespace ringsmith

// ---- what hangs on a tensor that takes part; for the files of runtime/autograd only ----
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
// so that there is no cycle: a graph is alive while any of its results is held.
struct GradMeta : AutogradMeta {
  bool requires_grad = false;
  Tensor grad;
  Tensor grad_target;  // where the first gradient is to be put
  std::weak_ptr<Node> accumulator;
  std::vector<LeafHook> hooks;
  bool step_skipped = false;  // since the last backward

  std::shared_ptr<Node> grad_fn;
  int output = 0;  // which output of grad_fn
};

// Null if the tensor has none (or is undefined).
inline GradMeta* meta_of(const Tensor& t) {
  return t.defined() ? static_cast<GradMeta*>(t.autograd_meta().get()) : nullptr;
}
GradMeta& meta_or_new(const Tensor& t);

// UsageError naming shapes, dtypes and devices unless `other`, which is `what`, has those of t.
void require_fits(const Tensor& t, const Tensor& other, const char* what);

// Where the gradient of t flows to: its grad_fn, or the accumulator of a leaf, or nowhere.
[[nodiscard]] Edge gradient_edge(const Tensor& t);

// Accumulators come first, whenever they are ready.
constexpr std::uint64_t kAccumulateSequence = std::numeric_limits<std::uint64_t>::max();

}  // namespace ringsmith::autograd
