// The graph: one Node for each differentiable operation of the forward pass.
//
//        x ----> [mul] ----> y          forward, left to right
//   AccumulateGrad(x) <---- MulBackward  graph, an edge for each input
//
// A Node turns the gradients of its outputs into gradients of its inputs. Leaves end in an
// AccumulateGrad node, which adds into .grad and then fires the leaf's hooks: once per backward,
// after all contributions have arrived, and that is all DistributedDataParallel needs.
//
// Functions do not write nodes: they record() a closure, at the end of this file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

class Node;

// Where a gradient flows to: an input slot of a node. An empty edge means "no gradient needed".
struct Edge {
  std::shared_ptr<Node> node;
  int input = 0;
  [[nodiscard]] explicit operator bool() const { return node != nullptr; }
};

class Node {
 public:
  virtual ~Node();
  // grads[i] is the gradient of output i of the forward operation; undefined means zero.
  // Returns one gradient (or an undefined tensor) for each element of edges.
  virtual std::vector<Tensor> apply(std::vector<Tensor> grads) = 0;
  [[nodiscard]] virtual std::string name() const = 0;  // "MulBackward"
  // Frees saved tensors; a second apply() must then throw an Error that says so.
  virtual void release() {}

  std::vector<Edge> edges;
  int outputs = 1;             // how many gradients apply() takes
  std::uint64_t sequence = 0;  // creation number: the engine runs later nodes first
  bool consumed = false;       // by a backward without retain_graph: a second one is an error
  Stream stream;               // on a GPU: where forward ran, and apply() will
};

// ---- grad mode, per thread ----
[[nodiscard]] bool grad_enabled();
class NoGradGuard {  // no graph is recorded while it lives
 public:
  NoGradGuard();
  ~NoGradGuard();
  NoGradGuard(const NoGradGuard&) = delete;
  NoGradGuard& operator=(const NoGradGuard&) = delete;

 private:
  bool previous_;
};

class EnableGradGuard {  // one is, also inside a NoGradGuard: for what backward computes again
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
  in_order,  // of registration
  last,      // after all in_order hooks, also later ones: the gradient leaves from here
  skipped    // not then, but by skip_step()
};
// Called after .grad of this leaf holds everything this backward adds to it, once for each backward
// that reaches the leaf (even if what arrived was "no gradient"). On the thread of backward(). The
// order between leaves is the engine's (engine.hpp).
HookHandle register_post_accumulate_grad_hook(const Tensor& leaf,
                                              std::function<void(const Tensor& leaf)> hook,
                                              HookTurn turn = HookTurn::in_order);
void remove_hook(const Tensor& leaf, HookHandle handle);
// The gradients of these leaves are not used: no optimizer makes a step of them (Optimizer::skip).
// Calls the hooks of HookTurn::skipped, on this thread.
void skip_step(const std::vector<Tensor>& leaves);
// Whether that was said of the gradient that the leaf got in its last backward.
[[nodiscard]] bool step_was_skipped(const Tensor& leaf);

// Runs after the whole graph of the current backward() is done, before backward() returns; of the
// outermost, where one runs inside of another. May be called from hooks only; the callback may
// throw, and backward() then throws that.
void queue_backward_callback(std::function<void()> callback);

// The leaves (with requires_grad) that backward from these roots would reach, in no order.
[[nodiscard]] std::vector<Tensor> reachable_leaves(const std::vector<Tensor>& roots);

// ---- building the graph, for authors of functions ----
// True if grad mode is on and any input requires a gradient.
[[nodiscard]] bool needs_graph(const std::vector<Tensor>& inputs);
// Connects node to the graph of its inputs and makes output its i-th result.
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
// The closure returns one gradient (or an undefined tensor) for each input, of the input's shape;
// it runs with gradient recording off. It owns `grad`: if grad.is_sole_owner(), it may reuse the
// memory for its result. Nothing is saved or recorded when no input needs a gradient.

// Where saved tensors go while a KeeperScope lives on this thread: checkpoint.hpp drops them, and
// computes them again when the first is fetched.
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

// A tensor kept for backward: without history (so that a result may be saved by its own node), with
// the version it had. Reading it after a write in place is an Error, and so is
// reading it after it was released.
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
  std::shared_ptr<SavedTensorKeeper> keeper_;  // which has it, under this number
  std::size_t number_ = 0;
};

// What a backward closure sees of its node.
class Saved {
 public:
  Saved(const Node& node, const std::vector<SavedTensor>& tensors)
      : node_(&node), tensors_(&tensors) {}
  [[nodiscard]] const Tensor& operator[](std::size_t i) const {
    return tensors_->at(i).get(node_->name());
  }
  // Whether input i wants a gradient: skip the work if not.
  [[nodiscard]] bool needs(std::size_t input) const { return static_cast<bool>(edge(input)); }
  [[nodiscard]] const Edge& edge(std::size_t input) const { return node_->edges.at(input); }

 private:
  const Node* node_;
  const std::vector<SavedTensor>* tensors_;
};

using BackwardFunction = std::function<std::vector<Tensor>(const Saved& saved, Tensor grad)>;

// Makes output, a fresh tensor object, the result of a node over inputs (undefined ones are
// allowed), and returns it. name is a literal like "ExpBackward".
Tensor record(const char* name, const std::vector<Tensor>& inputs, Tensor output,
              const std::vector<Tensor>& saved, BackwardFunction backward);

}  // namespace ringsmith
