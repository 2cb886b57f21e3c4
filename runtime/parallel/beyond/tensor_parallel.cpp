#include "runtime/parallel/beyond/tensor_parallel.hpp"

#include <algorithm>
#include <vector>

#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith {

namespace {

comm::ConstBuffer reading(const Tensor& t) {
  return {data_of(t), Elements(static_cast<std::size_t>(t.numel())), t.dtype()};
}
comm::Buffer writing(const Tensor& t) {
  return {data_of(t), Elements(static_cast<std::size_t>(t.numel())), t.dtype()};
}

// ---- collectives on tensors, without a graph ----

Tensor all_reduced(comm::ProcessGroup& group, const Tensor& x) {
  const Tensor in = x.to(group.device()).contiguous();
  const Tensor out = empty_like(in);
  group.all_reduce(reading(in), writing(out), comm::ReduceOp::sum);
  return out.to(x.device());
}

// (...) -> (T, ...)
Tensor all_gathered(comm::ProcessGroup& group, const Tensor& x) {
  const Tensor in = x.to(group.device()).contiguous();
  Shape sizes = in.sizes();
  sizes.insert(sizes.begin(), group.size());
  const Tensor out = Tensor::empty(sizes, in.options());
  group.all_gather(reading(in), writing(out));
  return out.to(x.device());
}

// (b, t / T, c) -> (b, t, c)
Tensor gathered_sequence(comm::ProcessGroup& group, const Tensor& x) {
  const Tensor all = all_gathered(group, x);
  return all.transpose(0, 1).reshape({x.size(0), group.size() * x.size(1), x.size(2)});
}

// (b, t, c) -> (T, b, t / T, c)
Tensor by_rank(comm::ProcessGroup& group, const Tensor& x) {
  return x.reshape({x.size(0), group.size(), x.size(1) / group.size(), x.size(2)}).transpose(0, 1);
}

// (b, t, c) -> (b, t / T, c), summed over the ranks
Tensor scattered_sequence(comm::ProcessGroup& group, const Tensor& x) {
  const Tensor in = by_rank(group, x).to(group.device()).contiguous();
  const Tensor out = Tensor::empty({in.size(1), in.size(2), in.size(3)}, in.options());
  group.reduce_scatter(reading(in), writing(out), comm::ReduceOp::sum);
  return out.to(x.device());
}

Tensor own_tokens(comm::ProcessGroup& group, const Tensor& x) {
  return by_rank(group, x).select(0, group.rank()).clone();
}

using OnTensor = Tensor (*)(comm::ProcessGroup& group, const Tensor& x);
Tensor unchanged(comm::ProcessGroup& /*group*/, const Tensor& x) { return x.detach(); }

Tensor with_backward(const char* name, const TensorGroup& group, const Tensor& x, OnTensor forward,
                     OnTensor backward) {
  if (group->size() == 1) return x;
  return record(name, {x}, forward(*group, x), {},
                [group, backward](const Saved& /*saved*/, const Tensor& grad) {
                  return std::vector<Tensor>{backward(*group, grad)};
                });
}

void check_sequence(const TensorGroup& group, const Tensor& x) {
  require(x.dim() == 3 && x.size(1) % group->size() == 0,
          "sequence parallelism: " + to_string(x.sizes()) +
              " must be (batch, tokens, width) with " + "tokens that " +
              std::to_string(group->size()) + " ranks divide");
}

}  // namespace

Tensor sum_gradients(const TensorGroup& group, const Tensor& x) {
  return with_backward("SumGradientsBackward", group, x, unchanged, all_reduced);
}

Tensor sum_parts(const TensorGroup& group, const Tensor& x) {
  return with_backward("SumPartsBackward", group, x, all_reduced, unchanged);
}

Tensor gather_sequence(const TensorGroup& group, const Tensor& x) {
  return with_backward("GatherSequenceBackward", group, x, gathered_sequence, scattered_sequence);
}

Tensor scatter_sequence(const TensorGroup& group, const Tensor& x) {
  check_sequence(group, x);
  return with_backward("ScatterSequenceBackward", group, x, scattered_sequence, gathered_sequence);
}

Tensor take_sequence(const TensorGroup& group, const Tensor& x) {
  check_sequence(group, x);
  return with_backward("TakeSequenceBackward", group, x, own_tokens, gathered_sequence);
}

Tensor whole_sequence(const TensorGroup& group, const Tensor& x) {
  return with_backward("WholeSequenceBackward", group, x, gathered_sequence, own_tokens);
}

// ---- parts of tensors ----

TensorSplit split_of(const std::string& name) {
  const auto is = [&](const char* layer, bool bias_too) {
    return name == std::string(layer) + ".weight" ||
           (bias_too && name == std::string(layer) + ".bias");
  };
  if (is("attention.qkv", true)) return TensorSplit::qkv_outputs;
  if (is("up", true)) return TensorSplit::outputs;
  if (is("attention.out", false) || is("down", false)) return TensorSplit::inputs;
  return TensorSplit::none;
}

namespace {

constexpr std::int64_t kMatricesOfQkv = 3;

// Views of a tensor in which the dimension to split is separate: (q, k, v; outputs; inputs).
struct SplitView {
  Shape sizes;
  int dim = 0;  // the one that is split
};
SplitView view_for(const Shape& sizes, TensorSplit split) {
  Shape all = sizes;
  const bool qkv = split == TensorSplit::qkv_outputs;
  if (qkv) {
    all.front() /= kMatricesOfQkv;
    all.insert(all.begin(), kMatricesOfQkv);
  }
  return {all, qkv || split == TensorSplit::inputs ? 1 : 0};
}

}  // namespace

Tensor part_of(const Tensor& whole, TensorSplit split, int rank, int ranks) {
  if (split == TensorSplit::none || ranks == 1) return whole;
  const auto [sizes, dim] = view_for(whole.sizes(), split);
  const std::int64_t length = sizes[static_cast<std::size_t>(dim)], part = length / ranks;
  require(length % ranks == 0, "tensor parallelism: " + to_string(whole.sizes()) +
                                   " cannot be split evenly among " + std::to_string(ranks) +
                                   " ranks");
  Shape out = whole.sizes();
  out[split == TensorSplit::inputs ? 1 : 0] /= ranks;
  return whole.detach().view(sizes).slice(dim, rank * part, (rank + 1) * part).clone().view(out);
}

Tensor whole_of(comm::ProcessGroup& group, const Tensor& part, TensorSplit split) {
  if (split == TensorSplit::none || group.size() == 1) return part.detach();
  const auto [sizes, dim] = view_for(part.sizes(), split);
  const Tensor all = all_gathered(group, part.detach().view(sizes));  // (T, ...)
  Shape out = part.sizes();
  out[split == TensorSplit::inputs ? 1 : 0] *= group.size();
  return (dim == 0 ? all : all.transpose(0, 1)).reshape(out);
}

// ---- the block ----

TensorParallelBlock::TensorParallelBlock(const Block& whole, const GPTOptions& options,
                                         TensorGroup group, bool split_sequence)
    : group_(std::move(group)),
      split_sequence_(split_sequence),
      heads_(options.heads / group_->size()),
      norm1_(options.dim),
      norm2_(options.dim),
      drop_(options.dropout) {
  require(options.heads % group_->size() == 0,
          "tensor parallelism: " + std::to_string(options.heads) + " heads cannot be split among " +
              std::to_string(group_->size()) + " ranks; take a number of ranks that divides them");
  require(!split_sequence || options.dropout == 0,
          "sequence parallelism: the ranks would drop the same elements of different tokens; leave "
          "out dropout");
  norm1_.weight = whole.norm1.weight;
  norm1_.bias = whole.norm1.bias;
  norm2_.weight = whole.norm2.weight;
  norm2_.bias = whole.norm2.bias;
  register_module("norm1", norm1_);
  take("attention.qkv", qkv_, whole.attention.qkv);
  take("attention.out", out_, whole.attention.out);
  register_module("norm2", norm2_);
  take("up", up_, whole.up);
  take("down", down_, whole.down);
  register_module("drop", drop_);
}

void TensorParallelBlock::take(const std::string& name, SplitLinear& slot, const Linear& whole) {
  const auto mine = [&](const std::string& parameter, const Tensor& t) {
    return part_of(t, split_of(parameter), group_->rank(), group_->size());
  };
  register_parameter(name + ".weight", slot.weight, mine(name + ".weight", whole.weight));
  register_parameter(name + ".bias", slot.bias, mine(name + ".bias", whole.bias));
}

Tensor TensorParallelBlock::enter(const Tensor& x) const {
  return split_sequence_ ? gather_sequence(group_, x) : sum_gradients(group_, x);
}

// The bias is added once, after the sum of the ranks' parts.
Tensor TensorParallelBlock::leave(const Tensor& x, const SplitLinear& layer) const {
  const Tensor part = linear(x, layer.weight);
  return (split_sequence_ ? scatter_sequence(group_, part) : sum_parts(group_, part)) + layer.bias;
}

Tensor TensorParallelBlock::forward(const Tensor& x) {
  const Tensor qkv = linear(enter(norm1_.lowered(x)), qkv_.weight, qkv_.bias);
  const auto [y, normed] = norm2_.add(x, drop_(leave(attention_qkv(qkv, heads_, true), out_)));
  return y + drop_(leave(gelu(linear(enter(normed), up_.weight, up_.bias), Gelu::tanh), down_));
}

void TensorParallelBlock::sum_sequence_gradients() {
  if (!split_sequence_ || group_->size() == 1) return;
  for (const auto& [name, parameter] : named_parameters())
    if (split_of(name) == TensorSplit::none && parameter.grad().defined())
      parameter.grad().copy_(all_reduced(*group_, parameter.grad()));
}

}  // namespace ringsmith
