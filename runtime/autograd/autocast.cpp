#include "runtime/autograd/autocast.hpp"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/tensor_grad.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith {

namespace {

struct KeptCast {
  Tensor parameter;  // held so that the key, its AutogradMeta's address, is not reused
  std::uint32_t version = 0;
  bool recorded = false;
  Tensor cast;
};

thread_local AutocastState thread_state;
thread_local int depth = 0;  // number of nested guards on this thread
thread_local std::unordered_map<const AutogradMeta*, KeptCast> kept;

bool castable(const Tensor& t) {
  return thread_state.enabled && t.defined() && (t.dtype() == DType::f32 || is_half(t.dtype()));
}

// True if a backward without retain_graph has used this cast: another backward would throw.
bool is_consumed(const Tensor& t) {
  const autograd::GradMeta* meta = autograd::meta_of(t);
  return meta != nullptr && meta->grad_fn != nullptr && meta->grad_fn->consumed;
}

}  // namespace

Autocast::Autocast(DType dtype, bool enabled) : previous_(thread_state) {
  require(is_half(dtype), "autocast: dtype " + std::string(name_of(dtype)) +
                              " is not a 16-bit floating type: use f16 or bf16");
  thread_state = {enabled, dtype};
  ++depth;
}

Autocast::~Autocast() {
  thread_state = previous_;
  if (--depth == 0) kept.clear();
}

AutocastState autocast_state() { return thread_state; }

namespace autocast {

Tensor lower(const Tensor& t) {
  if (!castable(t) || t.dtype() == thread_state.dtype) return t;
  if (t.dtype() != DType::f32 || !t.is_leaf() || !t.requires_grad())
    return to(t, thread_state.dtype);
  KeptCast& k = kept[t.autograd_meta().get()];
  const bool fits = k.cast.defined() && k.cast.dtype() == thread_state.dtype &&
                    k.version == t.version() && k.recorded == grad_enabled() &&
                    !is_consumed(k.cast);
  if (!fits) k = {t, t.version(), grad_enabled(), to(t, thread_state.dtype)};
  return k.cast;
}

Tensor f32(const Tensor& t) { return castable(t) ? to(t, DType::f32) : t; }

std::vector<Tensor> widest(const std::vector<Tensor>& tensors) {
  const bool all = std::ranges::all_of(tensors, castable);
  const bool one_dtype = std::ranges::all_of(
      tensors, [&](const Tensor& t) { return t.defined() && t.dtype() == tensors[0].dtype(); });
  if (!all || one_dtype) return tensors;
  std::vector<Tensor> out;
  for (const Tensor& t : tensors) out.push_back(to(t, DType::f32));
  return out;
}

}  // namespace autocast

}  // namespace ringsmith
