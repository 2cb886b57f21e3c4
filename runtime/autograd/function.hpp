// For authors of differentiable functions: compute the result with plain tensors, then record() how
// the gradient flows back.
//
//   Tensor exp(const Tensor& x) {
//     Tensor y = raw::exp(x);
//     record("ExpBackward", {x}, y, {y}, [](const Saved& saved, Tensor grad) {
//       return std::vector<Tensor>{raw::mul(grad, saved[0])};
//     });
//     return y;
//   }
//
// The closure returns one gradient (or an undefined tensor) for each input, of the input's shape;
// it runs with gradient recording off. It owns `grad`: if grad.is_sole_owner(), it may reuse the
// memory for its result. Nothing is saved or recorded when no input needs a gradient.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/autograd/node.hpp"

namespace ringsmith {

// A tensor kept for backward: without history (so that a result may be saved by its own node), with
// the version it had. Reading it after somebody has written to it in place is an Error, and so is
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
// allowed). name is a literal like "ExpBackward".
void record(const char* name, const std::vector<Tensor>& inputs, Tensor& output,
            const std::vector<Tensor>& saved, BackwardFunction backward);

}  // namespace ringsmith
