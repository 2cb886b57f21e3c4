#include "runtime/autograd/autocast.hpp"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "kernels/copy.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/tensor_grad.hpp"
#include "runtime/device/profiler.hpp"
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

// A cast that lower_all() has made and no function has used yet. lower() records the cast when a
// function needs it, because backward runs the latest nodes first, and DDP needs the gradients of
// the last layers first.
struct ReadyCast {
  Tensor parameter;
  std::uint32_t version = 0;
  Tensor values;
};
thread_local std::unordered_map<const AutogradMeta*, ReadyCast> ready;

// Returns the values of t in the guard's dtype, or an undefined tensor.
Tensor take_ready(const Tensor& t) {
  const auto found = ready.find(t.autograd_meta().get());
  if (found == ready.end()) return {};
  const ReadyCast cast = std::move(found->second);
  ready.erase(found);
  const bool fits = cast.version == t.version() && cast.values.dtype() == thread_state.dtype;
  return fits ? cast.values : Tensor();
}

bool is_parameter(const Tensor& t) {
  return t.dtype() == DType::f32 && t.is_leaf() && t.requires_grad();
}

bool castable(const Tensor& t) {
  return thread_state.enabled && t.defined() && (t.dtype() == DType::f32 || is_half(t.dtype()));
}

// True if a backward without retain_graph has used this cast: another backward would throw.
bool is_consumed(const Tensor& t) {
  const autograd::GradMeta* meta = autograd::meta_of(t);
  return meta != nullptr && meta->grad_fn != nullptr && meta->grad_fn->consumed;
}

bool fits(const KeptCast& k, const Tensor& t) {
  return k.cast.defined() && k.cast.dtype() == thread_state.dtype && k.version == t.version() &&
         k.recorded == grad_enabled() && !is_consumed(k.cast);
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
  if (--depth > 0) return;
  kept.clear();
  ready.clear();
}

AutocastState autocast_state() { return thread_state; }

namespace autocast {

Tensor lower(const Tensor& t) {
  if (!castable(t) || t.dtype() == thread_state.dtype) return t;
  if (!is_parameter(t)) return to(t, thread_state.dtype);
  KeptCast& k = kept[t.autograd_meta().get()];
  if (fits(k, t)) return k.cast;
  const Tensor values = take_ready(t);
  k = {t, t.version(), grad_enabled(),
       values.defined() ? record_conversion(t, values) : to(t, thread_state.dtype)};
  return k.cast;
}

void lower_all(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> from, to;
  for (const Tensor& t : parameters) {
    if (!castable(t) || !is_parameter(t) || !t.device().is_cuda() || !t.is_contiguous()) continue;
    if (t.storage()->is_released()) continue;  // a unit of FSDP, which will cast when it runs
    if (!from.empty() && t.device() != from[0].device()) continue;
    const auto found = kept.find(t.autograd_meta().get());
    if (found != kept.end() && fits(found->second, t)) continue;
    ReadyCast& cast = ready[t.autograd_meta().get()];
    if (cast.values.defined() && cast.version == t.version() &&
        cast.values.dtype() == thread_state.dtype)
      continue;
    cast = {t, t.version(), Tensor::empty(t.sizes(), {thread_state.dtype, t.device()})};
    from.push_back(t);
    to.push_back(cast.values);
  }
  if (from.empty()) return;
  const profile::Operation operation("to");
  raw::visit_half(thread_state.dtype, "autocast", [&]<class H>(TypeTag<H>) {
    std::vector<kernels::RoundedTensor<H>> all;
    for (std::size_t i = 0; i < from.size(); ++i)
      all.push_back({from[i].kernel_span<float>(), to[i].kernel_span<H>()});
    kernels::round_all(from[0].device(), std::span<const kernels::RoundedTensor<H>>(all));
  });
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
