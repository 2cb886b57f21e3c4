// The gradient side of a tensor (declared in runtime/tensor/tensor.hpp), and hooks on leaves.

#include "runtime/autograd/tensor_grad.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "runtime/autograd/engine.hpp"
#include "runtime/device/profiler.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith {

namespace autograd {

GradMeta& meta_or_new(const Tensor& t) {
  if (t.autograd_meta() == nullptr) t.set_autograd_meta(std::make_shared<GradMeta>());
  return *meta_of(t);
}

Edge gradient_edge(const Tensor& t) {
  GradMeta* meta = meta_of(t);
  if (meta == nullptr) return {};
  if (meta->grad_fn) return {meta->grad_fn, meta->output};
  if (!meta->requires_grad) return {};
  std::shared_ptr<Node> node = meta->accumulator.lock();
  if (node == nullptr) {
    node = std::make_shared<AccumulateGrad>(t);
    meta->accumulator = node;
  }
  return {node, 0};
}

void require_fits(const Tensor& t, const Tensor& other, const char* what) {
  if (other.sizes() != t.sizes() || other.options() != t.options())
    throw UsageError(std::string(what) + " of shape " + to_string(other.sizes()) + ", dtype " +
                     std::string(name_of(other.dtype())) + " on " + other.device().str() +
                     " does not fit a tensor of shape " + to_string(t.sizes()) + ", dtype " +
                     std::string(name_of(t.dtype())) + " on " + t.device().str());
}

namespace {
GradMeta& leaf_meta(const Tensor& leaf, const char* what) {
  if (!leaf.is_leaf() || !leaf.requires_grad())
    throw UsageError(std::string(what) + " needs a leaf that requires a gradient");
  return *meta_of(leaf);
}
}  // namespace

}  // namespace autograd

using autograd::meta_of;

bool Tensor::requires_grad() const {
  const autograd::GradMeta* meta = meta_of(*this);
  return meta != nullptr && (meta->requires_grad || meta->grad_fn != nullptr);
}

const Tensor& Tensor::requires_grad_(bool on) const {
  if (!is_leaf()) {
    require(on, "requires_grad_(false) works on leaves only: use detach()");
    return *this;
  }
  if (on && !is_floating(dtype()))
    throw UsageError("only floating-point tensors can require gradients, this one is " +
                     std::string(name_of(dtype())));
  if (on || meta_of(*this) != nullptr) autograd::meta_or_new(*this).requires_grad = on;
  return *this;
}

Tensor Tensor::grad() const {
  const autograd::GradMeta* meta = meta_of(*this);
  return meta != nullptr ? meta->grad : Tensor();
}

void Tensor::set_grad(const Tensor& grad) const {
  if (!grad.defined()) {
    if (meta_of(*this) != nullptr) meta_of(*this)->grad = Tensor();
    return;
  }
  autograd::require_fits(*this, grad, "a gradient");
  autograd::meta_or_new(*this).grad = grad;
}

bool Tensor::is_leaf() const {
  (void)impl();
  const autograd::GradMeta* meta = meta_of(*this);
  return meta == nullptr || meta->grad_fn == nullptr;
}

void Tensor::move_to(Device device) const {
  require(is_leaf(), "move_to() works on leaves only: use to(), which copies");
  if (this->device() == device) return;
  set_data(to(device));
  autograd::GradMeta* meta = meta_of(*this);
  if (meta == nullptr) return;
  if (meta->grad.defined()) meta->grad = meta->grad.to(device);
  meta->grad_target = Tensor();
}

void Tensor::backward(const Tensor& gradient) const { ringsmith::backward({*this}, {gradient}); }

HookHandle register_post_accumulate_grad_hook(const Tensor& leaf,
                                              std::function<void(const Tensor& leaf)> hook,
                                              HookTurn turn) {
  static std::atomic<HookHandle> next{1};
  autograd::GradMeta& meta = autograd::leaf_meta(leaf, "register_post_accumulate_grad_hook");
  const HookHandle handle = next++;
  const auto place = std::ranges::find_if(
      meta.hooks, [turn](const autograd::LeafHook& h) { return h.turn > turn; });
  meta.hooks.insert(place, {handle, turn, std::move(hook)});
  return handle;
}

void remove_hook(const Tensor& leaf, HookHandle handle) {
  autograd::GradMeta* meta = meta_of(leaf);
  if (meta == nullptr) return;
  auto& hooks = meta->hooks;
  hooks.erase(std::remove_if(hooks.begin(), hooks.end(),
                             [handle](const autograd::LeafHook& h) { return h.handle == handle; }),
              hooks.end());
}

void skip_step(const std::vector<Tensor>& leaves) {
  for (const Tensor& leaf : leaves) {
    autograd::GradMeta* meta = meta_of(leaf);
    if (meta == nullptr) continue;
    meta->step_skipped = true;
    const std::vector<autograd::LeafHook> hooks = meta->hooks;  // a copy, as in apply()
    for (const autograd::LeafHook& hook : hooks)
      if (hook.turn == HookTurn::skipped) hook.call(leaf);
  }
}

bool step_was_skipped(const Tensor& leaf) {
  const autograd::GradMeta* meta = meta_of(leaf);
  return meta != nullptr && meta->step_skipped;
}

void set_loss_scale(const std::vector<Tensor>& leaves, double scale) {
  for (const Tensor& leaf : leaves)
    if (autograd::GradMeta* meta = meta_of(leaf)) meta->loss_scale = scale;
}

double loss_scale(const Tensor& leaf) {
  const autograd::GradMeta* meta = meta_of(leaf);
  return meta == nullptr ? 0 : meta->loss_scale;
}

void set_grad_target(const Tensor& leaf, const Tensor& view) {
  autograd::GradMeta& meta = autograd::leaf_meta(leaf, "set_grad_target");
  if (view.defined()) {
    autograd::require_fits(leaf, view, "a gradient target");
    require(view.is_contiguous(), "a gradient target must be contiguous");
  }
  meta.grad_target = view;
}

AccumulateGrad::AccumulateGrad(Tensor leaf) : leaf_(std::move(leaf)) {
  sequence = autograd::kAccumulateSequence;
  if (leaf_.device().is_cuda()) stream = Stream::current(leaf_.device());
}

std::vector<Tensor> AccumulateGrad::apply(std::vector<Tensor> grads) {
  if (grads[0].defined()) accumulate(std::move(grads[0]));
  // A copy, because a hook may remove itself or register another.
  const std::vector<autograd::LeafHook> hooks = autograd::meta_of(leaf_)->hooks;
  autograd::meta_of(leaf_)->step_skipped = false;
  for (const autograd::LeafHook& hook : hooks)
    if (hook.turn != HookTurn::skipped) hook.call(leaf_);
  return {};
}

void AccumulateGrad::accumulate(Tensor grad) const {
  const profile::Operation operation("AccumulateGrad");
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
