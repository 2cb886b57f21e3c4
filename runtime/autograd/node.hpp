// The graph: one Node per differentiable operation of the forward pass.
//
//        x ----> [mul] ----> y          forward, left to right
//   AccumulateGrad(x) <---- MulBackward  graph, one edge per input
//
// A Node converts the gradients of its outputs to gradients of its inputs. The graph ends at each
// leaf in an AccumulateGrad node. Once per backward, after all gradients for the leaf have arrived,
// this node adds their sum to .grad and calls the leaf's hooks. DistributedDataParallel is built on
// these hooks.
//
// Instead of defining node classes, most functions record() a closure (see the end of this file).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

class Node;

// A gradient's destination: an input slot of a node. An empty edge means that no gradient is
// needed.
struct Edge {
  std::shared_ptr<Node> node;
  int input = 0;
  [[nodiscard]] explicit operator bool() const { return node != nullptr; }
};

class Node {
 public:
  virtual ~Node();
  // grads[i] is the gradient of output i of the forward operation; undefined means zero. Returns
  // one gradient (or an undefined tensor) per edge.
  virtual std::vector<Tensor> apply(std::vector<Tensor> grads) = 0;
  [[nodiscard]] virtual std::string name() const = 0;  // "MulBackward"
  // Frees saved tensors. A later apply() must throw an Error that says that they have been freed.
  virtual void release() {}

  std::vector<Edge> edges;
  int outputs = 1;             // number of gradients that apply() takes
  std::uint64_t sequence = 0;  // creation number: the engine runs later nodes first
  bool consumed = false;       // set by a backward without retain_graph; the next throws Error
  Stream stream;               // on a GPU: the stream of forward and of apply()
};

// ---- grad mode, per thread ----
[[nodiscard]] bool grad_enabled();
class NoGradGuard {  // no graph is recorded during its lifetime
 public:
  NoGradGuard();
  ~NoGradGuard();
  NoGradGuard(const NoGradGuard&) = delete;
  NoGradGuard& operator=(const NoGradGuard&) = delete;

 private:
  bool previous_;
};

class EnableGradGuard {  // records even inside a NoGradGuard, for recomputation in backward
 public:
  EnableGradGuard();
  ~EnableGradGuard();
  EnableGradGuard(const EnableGradGuard&) = delete;
  EnableGradGuard& operator=(const EnableGradGuard&) = delete;

 private:
  bool previous_;
};

// ---- hooks on leaves ----
using HookHandle = std::uint64_t;
enum class HookTurn : std::uint8_t {
  in_order,  // in order of registration
  last,      // after all in_order hooks, even those registered later
  skipped    // called by skip_step(), not by backward
};
// The hook is called once per backward that reaches the leaf, on the thread of backward(), after
// .grad contains everything that this backward adds to it (even if all gradients were undefined).
// engine.hpp states the order of the leaves.
HookHandle register_post_accumulate_grad_hook(const Tensor& leaf,
                                              std::function<void(const Tensor& leaf)> hook,
                                              HookTurn turn = HookTurn::in_order);
void remove_hook(const Tensor& leaf, HookHandle handle);
// Declares that no optimizer will step with the gradients of these leaves (Optimizer::skip), and
// calls their hooks of HookTurn::skipped on this thread.
void skip_step(const std::vector<Tensor>& leaves);
// True if skip_step() was called since the leaf's last backward.
[[nodiscard]] bool step_was_skipped(const Tensor& leaf);

// The factor by which the loss is scaled in the next backward that reaches these leaves
// (GradScaler); 0 if none was set.
void set_loss_scale(const std::vector<Tensor>& leaves, double scale);
[[nodiscard]] double loss_scale(const Tensor& leaf);

// The outermost backward() on this thread calls the callback after its whole graph is done, and
// rethrows the callback's exception. Throws UsageError outside of backward().
void queue_backward_callback(std::function<void()> callback);

// The leaves (with requires_grad) that backward from these roots would reach, in any order.
[[nodiscard]] std::vector<Tensor> reachable_leaves(const std::vector<Tensor>& roots);

// ---- building the graph, for authors of functions ----
// True if grad mode is on and any input requires a gradient.
[[nodiscard]] bool needs_graph(const std::vector<Tensor>& inputs);
void connect(const std::shared_ptr<Node>& node, const std::vector<Tensor>& inputs, Tensor& output,
             int i = 0);

// ---- recording, for authors of functions ----
// Compute the result with plain tensors, then record() how the gradient flows back:
//
//   Tensor exp(const Tensor& x) {
//     const Tensor y = raw::exp(x);
//     return record("ExpBackward", {x}, y, {y}, [](const Saved& saved, Tensor grad) {
//       return std::vector<Tensor>{raw::mul(grad, saved[0])};
//     });
//   }
//
// The closure returns one gradient (or an undefined tensor) per input, of the input's shape. It
// runs with grad mode off. It owns `grad`: if grad.is_sole_owner(), it may reuse the memory for its
// result. Nothing is saved or recorded unless needs_graph(inputs).

// Stores the tensors that are saved while a KeeperScope with this keeper exists on the thread.
// checkpoint.hpp's keeper drops them and recomputes them at the first fetch().
class SavedTensorKeeper {
 public:
  virtual ~SavedTensorKeeper() = default;
  virtual std::size_t keep(const Tensor& t) = 0;  // returns its number
  [[nodiscard]] virtual const Tensor& fetch(std::size_t number) = 0;
  virtual void release(std::size_t number) = 0;
};
class KeeperScope {
 public:
  explicit KeeperScope(std::shared_ptr<SavedTensorKeeper> keeper);
  ~KeeperScope();
  KeeperScope(const KeeperScope&) = delete;
  KeeperScope& operator=(const KeeperScope&) = delete;

 private:
  std::shared_ptr<SavedTensorKeeper> previous_;
};

// A tensor saved for backward, without its history, so that a node may save its own result. get()
// throws Error if the tensor has been written in place since, or after release().
class SavedTensor {
 public:
  SavedTensor() = default;  // undefined
  explicit SavedTensor(const Tensor& t);
  [[nodiscard]] const Tensor& get(const std::string& function) const;
  void release();

 private:
  Tensor tensor_;
  std::uint32_t version_ = 0;
  bool released_ = false;
  std::shared_ptr<SavedTensorKeeper> keeper_;  // if set, it stores the tensor as number_
  std::size_t number_ = 0;
};

// The backward closure's view of its node.
class Saved {
 public:
  Saved(const Node& node, const std::vector<SavedTensor>& tensors)
      : node_(&node), tensors_(&tensors) {}
  [[nodiscard]] const Tensor& operator[](std::size_t i) const {
    return tensors_->at(i).get(node_->name());
  }
  // If false, the gradient of this input need not be computed.
  [[nodiscard]] bool needs(std::size_t input) const { return static_cast<bool>(edge(input)); }
  [[nodiscard]] const Edge& edge(std::size_t input) const { return node_->edges.at(input); }

 private:
  const Node* node_;
  const std::vector<SavedTensor>* tensors_;
};

using BackwardFunction = std::function<std::vector<Tensor>(const Saved& saved, Tensor grad)>;

// Makes `output`, which must be a new tensor object, the result of a new node over `inputs`, and
// returns it. Inputs may be undefined. `name` is a literal such as "ExpBackward".
Tensor record(const char* name, const std::vector<Tensor>& inputs, Tensor output,
              const std::vector<Tensor>& saved, BackwardFunction backward);

}  // namespace ringsmith
