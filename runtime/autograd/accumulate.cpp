#include "runtime/autograd/accumulate.hpp"

#include <utility>

#include "runtime/autograd/engine.hpp"
#include "runtime/autograd/meta.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith {

AccumulateGrad::AccumulateGrad(Tensor leaf) : leaf_(std::move(leaf)) {
  sequence = autograd::kAccumulateSequence;
  if (leaf_.device().is_cuda()) stream = Stream::current(leaf_.device());
}

std::vector<Tensor> AccumulateGrad::apply(std::vector<Tensor> grads) {
  if (grads[0].defined()) accumulate(std::move(grads[0]));
  // A copy: a hook may remove itself or register another.
  const std::vector<autograd::LeafHook> hooks = autograd::meta_of(leaf_)->hooks;
  for (const autograd::LeafHook& hook : hooks) hook.call(leaf_);
  return {};
}

void AccumulateGrad::accumulate(Tensor grad) const {
  autograd::GradMeta& meta = *autograd::meta_of(leaf_);
  if (grad.sizes() != leaf_.sizes())
    throw Error("a gradient of shape " + to_string(grad.sizes()) + " arrived at a leaf of shape " +
                to_string(leaf_.sizes()));
  if (grad.device() != leaf_.device())
    throw Error("a gradient on " + grad.device().str() + " arrived at a leaf on " +
                leaf_.device().str());
  if (meta.grad.defined()) {
    if (!grad.is_same(meta.grad)) raw::add_into(meta.grad, grad);
  } else if (meta.grad_target.defined()) {
    if (!grad.is_same(meta.grad_target)) meta.grad_target.copy_(grad);
    meta.grad = meta.grad_target;
  } else if (grad.dtype() == leaf_.dtype() && grad.is_contiguous() && grad.is_sole_owner()) {
    meta.grad = std::move(grad);
  } else {
    meta.grad = grad.dtype() == leaf_.dtype() ? grad.clone() : grad.to(leaf_.dtype());
  }
}

GradDestination grad_destination(const Edge& edge) {
  if (!edge || edge.node->sequence != autograd::kAccumulateSequence ||
      autograd::sole_pending(edge.node.get()) != 1)
    return {};
  const Tensor& leaf = static_cast<AccumulateGrad*>(edge.node.get())->leaf();
  const autograd::GradMeta& meta = *autograd::meta_of(leaf);
  if (!meta.grad.defined()) return {meta.grad_target, false};
  return meta.grad.is_contiguous() ? GradDestination{meta.grad, true} : GradDestination{};
}

}  // namespace ringsmith
