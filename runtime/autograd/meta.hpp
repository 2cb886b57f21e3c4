// What hangs on a tensor that takes part in autograd. For the files of runtime/autograd only.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/autograd/node.hpp"

namespace ringsmith::autograd {

struct LeafHook {
  HookHandle handle;
  std::function<void(const Tensor&)> call;
};

// Either a leaf (requires_grad, no grad_fn) or the result of an operation (grad_fn).
//
//   leaf Tensor --strong--> GradMeta --weak--> AccumulateGrad --strong--> leaf Tensor
//   result Tensor --strong--> GradMeta --strong--> grad_fn --edges, strong--> earlier nodes
//
// so that there is no cycle: a graph is alive as long as somebody holds one of its results.
struct GradMeta : AutogradMeta {
  bool requires_grad = false;
  Tensor grad;
  Tensor grad_target;  // where the first gradient is to be put (accumulate.hpp)
  std::weak_ptr<Node> accumulator;
  std::vector<LeafHook> hooks;

  std::shared_ptr<Node> grad_fn;
  int output = 0;  // which output of grad_fn
};

// Null if the tensor has none (or is undefined).
inline GradMeta* meta_of(const Tensor& t) {
  return t.defined() ? static_cast<GradMeta*>(t.autograd_meta().get()) : nullptr;
}
GradMeta& meta_or_new(const Tensor& t);

// Where the gradient of t flows to: its grad_fn, or the accumulator of a leaf, or nowhere.
[[nodiscard]] Edge gradient_edge(const Tensor& t);

// Accumulators come first, whenever they are ready.
constexpr std::uint64_t kAccumulateSequence = std::numeric_limits<std::uint64_t>::max();

}  // namespace ringsmith::autograd
