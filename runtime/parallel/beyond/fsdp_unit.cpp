#include "runtime/parallel/beyond/fsdp_unit.hpp"

#include <utility>

#include "runtime/autograd/tensor_grad.hpp"
#include "runtime/base/tracer.hpp"
#include "runtime/parallel/beyond/sharded_state.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith {

namespace {

constexpr const char* kFreed =
    "FullyShardedDataParallel keeps a parameter only while its unit runs forward or backward; call "
    "units as unit(x), from forward(), and read parameters inside whole()";

}  // namespace

std::int64_t FsdpUnit::elements() const {
  return parameters.back().storage_offset() + parameters.back().numel();
}

Tensor FsdpUnit::view_in(const Tensor& all, std::size_t p) const {
  const std::int64_t at = parameters[p].storage_offset();
  return all.slice(0, at, at + parameters[p].numel()).view(parameters[p].sizes());
}

void FsdpUnit::shard_over(const comm::ProcessGroup& group, DType dtype) {
  if (empty()) return;
  std::int64_t n = 0;
  for (const Tensor& p : parameters) n += p.numel();
  const std::int64_t size = fsdp_shard_size(n, group.size());
  const Tensor values = Tensor::empty({size * group.size()}, parameters.front().options());
  flat = dtype == values.dtype() ? values : Tensor::empty(values.sizes(), {dtype, values.device()});
  std::int64_t at = 0;
  for (Tensor& p : parameters) {
    const Tensor place = values.slice(0, at, at + p.numel()).view(p.sizes());
    place.copy_(p);
    p.set_data(place);
    if (dtype != p.dtype())
      p = flat.slice(0, at, at + p.numel()).view(p.sizes()).detach().requires_grad_();
    at += p.numel();
  }
  values.slice(0, n, values.numel()).zero_();
  begin = group.rank() * size;
  shard = values.slice(0, begin, begin + size).clone();
  shard.requires_grad_();
  gathered = shard.version();
  for (const Tensor& all : {values, flat}) all.storage()->release(kFreed);
}

void FsdpUnit::start_gather(comm::ProcessGroup& group, bool overlap) {
  if (empty() || has_memory()) return;
  flat.storage()->restore();
  // Tensors that a graph has saved are stale if the optimizer has changed the shard since.
  if (std::exchange(gathered, shard.version()) != shard.version()) flat.bump_version();
  sent = shard.detach().to(flat.dtype());
  const comm::Buffer mine = sharded::buffer_of(sent), all = sharded::buffer_of(flat);
  if (overlap)
    gathering = group.all_gather_async(mine, all);
  else
    group.all_gather(mine, all);
}

void FsdpUnit::wait_gathered() {
  if (gathering) {
    const trace::Span waiting("wait for parameters", trace::Category::wait);
    std::exchange(gathering, nullptr)->wait();
  }
  sent = Tensor();
}

void FsdpUnit::free() {
  wait_gathered();
  if (has_memory()) flat.storage()->release(kFreed);
  stays = false;
}

void FsdpUnit::begin_backward() {
  if (empty() || backward.gradients.defined()) return;  // a unit that forward has used twice
  backward.gradients = empty_like(flat);
  backward.waiting = parameters.size();
  for (std::size_t p = 0; p < parameters.size(); ++p)
    set_grad_target(parameters[p], view_in(backward.gradients, p));
}

void FsdpUnit::start_reduce(comm::ProcessGroup& group, bool overlap) {
  free();  // every node that uses the parameters has run
  backward.waiting = 0;
  const Tensor& all = backward.gradients;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const Tensor grad = parameters[p].grad(), place = view_in(all, p);
    if (!grad.defined())
      place.zero_();
    else if (data_of(grad) != data_of(place))
      place.copy_(grad);
    parameters[p].set_grad({});
    set_grad_target(parameters[p], {});
  }
  all.slice(0, elements(), all.numel()).zero_();
  backward.average = Tensor::empty(shard.sizes(), all.options());
  const comm::Buffer whole = sharded::buffer_of(all), part = sharded::buffer_of(backward.average);
  if (overlap)
    backward.reducing = group.reduce_scatter_async(whole, part, comm::ReduceOp::avg);
  else
    group.reduce_scatter(whole, part, comm::ReduceOp::avg);
}

void FsdpUnit::finish_reduce() {
  if (backward.reducing) {
    const trace::Span waiting("wait for gradients", trace::Category::wait);
    backward.reducing->wait();
  }
  if (const Tensor grad = shard.grad(); grad.defined())
    raw::add_into(grad, backward.average.to(shard.dtype()));
  else
    shard.set_grad(backward.average.to(shard.dtype()));
  backward = {};
}

void FsdpUnit::abandon() {
  for (const comm::WorkPtr& work : {gathering, backward.reducing}) try {
      if (work) work->wait();
    } catch (const Error&) {  // reported elsewhere; here it only matters that the work has ended
      continue;
    }
  gathering = nullptr;
  if (backward.gradients.defined())
    for (const Tensor& p : parameters) {
      p.set_grad({});
      if (p.requires_grad()) set_grad_target(p, {});
    }
  backward = {};
  free();
}

}  // namespace ringsmith
