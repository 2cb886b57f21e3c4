#include "runtime/parallel/beyond/zero.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <numeric>
#include <span>
#include <utility>

#include "runtime/parallel/beyond/sharded_state.hpp"
#include "runtime/parallel/bucket.hpp"

namespace ringsmith {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
std::int64_t elements(Elements n) { return static_cast<std::int64_t>(n.value); }

Tensor allocate(comm::ProcessGroup& group, Device device, std::int64_t count, DType dtype) {
  const auto memory = group.allocate_on(device, bytes_of(Elements(at(count)), size_of(dtype)));
  return Tensor::from_storage(Storage::adopt(memory->data(), memory->size(), memory, device),
                              {count}, {1}, 0, dtype);
}

// Calls f(parameter, a, b, offset) for each slot that overlaps [from, to). The overlap is elements
// [a, b) of the parameter, and starts at `offset` in the range.
template <class F>
void for_each_cut(const BucketLayout& layout, std::int64_t from, std::int64_t to, const F& f) {
  for (const BucketSlot& slot : layout.slots) {
    const std::int64_t begin = elements(slot.offset), end = begin + elements(slot.count);
    const std::int64_t low = std::max(from, begin), high = std::min(to, end);
    if (low < high) f(at(slot.parameter), low - begin, high - begin, low - from);
  }
}

}  // namespace

ZeroRedundancyOptimizer::ZeroRedundancyOptimizer(DistributedDataParallel& ddp, const Make& make,
                                                 ZeroGradients gradients)
    : Optimizer(ddp.reducer().parameters(), 0, {}, false),
      group_(ddp.group()),
      gradients_(gradients) {
  const Device device = params().front().device();
  const DType dtype = params().front().dtype();
  require(device.is_cpu() || device == group_.device(),
          fmt::format("ZeroRedundancyOptimizer: the parameters are on {}, the group is not: make "
                      "the group on their device",
                      device.str()));
  for (const Tensor& p : params())
    require(p.dtype() == dtype,
            "ZeroRedundancyOptimizer: parameters of several dtypes; make one "
            "optimizer and one DistributedDataParallel for each");
  // Roughly the order in which gradients will arrive. Unlike DDP's own order, this order never
  // changes, because parts must not move.
  std::vector<int> order(params().size());
  std::iota(order.rbegin(), order.rend(), 0);
  plan_ = rebuilt_plan(ddp.reducer().items(), ddp.reducer().options().caps, order);
  if (gradients_ == ZeroGradients::scattered) {
    ddp.register_comm_hook({"zero", [this](const GradBucket& b) { return scatter(b); }});
    ddp.rebuild_in(order);
  }

  const auto size = static_cast<std::int64_t>(size_of(dtype));
  memory_ = allocate(group_, device, static_cast<std::int64_t>(plan_.end().value) / size, dtype);
  const std::int64_t world = group_.size(), rank = group_.rank();
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    const BucketLayout& layout = plan_.buckets[b];
    Bucket bucket;
    bucket.start = static_cast<std::int64_t>(layout.start.value) / size;
    bucket.count = elements(layout.count);
    bucket.part = bucket.count / world;
    if (bucket.part > 0) bucket.mine = allocate(group_, device, bucket.part, dtype);
    buckets_.push_back(bucket);
    for (const BucketSlot& slot : layout.slots) {
      const Tensor& p = params()[at(slot.parameter)];
      const Tensor place = arena(bucket.start + elements(slot.offset), p.numel()).view(p.sizes());
      place.copy_(p);
      p.set_data(place);
    }
    take(b, layout, rank * bucket.part, (rank + 1) * bucket.part, false);
    take(b, layout, world * bucket.part, bucket.count, true);
  }
  std::vector<Tensor> mine;
  for (const ParameterShard& piece : pieces_) mine.push_back(piece.values);
  inner_ = make(std::move(mine));
  Optimizer::set_lr(inner_->lr());
}

Tensor ZeroRedundancyOptimizer::arena(std::int64_t start, std::int64_t count) const {
  return memory_.slice(0, start, start + count);
}

void ZeroRedundancyOptimizer::take(std::size_t bucket, const BucketLayout& layout,
                                   std::int64_t from, std::int64_t to, bool tail) {
  for_each_cut(layout, from, to,
               [&](std::size_t p, std::int64_t low, std::int64_t high, std::int64_t place) {
                 const Tensor values = arena(buckets_[bucket].start + from + place, high - low);
                 pieces_.push_back(
                     {p, low, high, bucket, tail ? -1 : place, values.detach().requires_grad_()});
               });
}

// ---- a step ----

// The hook that replaces the bucket's all-reduce. The bucket is unchanged except for its tail.
Future ZeroRedundancyOptimizer::scatter(const GradBucket& bucket) const {
  using sharded::buffer_of;
  const Bucket& mine = buckets_[at(bucket.index)];
  const std::int64_t even = mine.part * group_.size();
  std::vector<comm::WorkPtr> works;
  if (mine.part > 0)
    works.push_back(group_.reduce_scatter_async(buffer_of(bucket.buffer.slice(0, 0, even)),
                                                buffer_of(mine.mine), comm::ReduceOp::avg));
  if (even < mine.count) {
    const comm::Buffer tail = buffer_of(bucket.buffer.slice(0, even, mine.count));
    works.push_back(group_.all_reduce_async(tail, tail, comm::ReduceOp::avg));
  }
  return Future([works = std::move(works), buffer = bucket.buffer] {
    for (const comm::WorkPtr& work : works) work->wait();
    return buffer;
  });
}

// Returns an undefined tensor if the piece's parameter has no gradient.
Tensor ZeroRedundancyOptimizer::gradient_of(const ParameterShard& piece) const {
  const Tensor grad = params()[piece.parameter].grad();
  if (!grad.defined()) return {};
  const std::int64_t count = piece.to - piece.from;
  if (gradients_ == ZeroGradients::scattered && piece.at >= 0)
    return buckets_[piece.bucket].mine.slice(0, piece.at, piece.at + count);
  return grad.contiguous().view({-1}).slice(0, piece.from, piece.to);
}

void ZeroRedundancyOptimizer::set_lr(double lr) {
  inner_->set_lr(lr);
  Optimizer::set_lr(lr);
}

std::vector<Tensor> ZeroRedundancyOptimizer::gradients() const {
  if (gradients_ == ZeroGradients::all_reduced) return Optimizer::gradients();
  std::vector<Tensor> out;
  for (const ParameterShard& piece : pieces_)
    if (const Tensor grad = gradient_of(piece); grad.defined()) out.push_back(grad);
  return out;
}

bool ZeroRedundancyOptimizer::any_rank(bool mine) const {
  if (gradients_ == ZeroGradients::all_reduced) return mine;
  std::array<std::int32_t, 1> any{mine ? 1 : 0};
  group_.all_reduce(std::span<std::int32_t>(any), comm::ReduceOp::max);
  return any[0] != 0;
}

void ZeroRedundancyOptimizer::update(const std::vector<Update>& /*all*/) {
  for (const ParameterShard& piece : pieces_) piece.values.set_grad(gradient_of(piece));
  inner_->step();
  for (const ParameterShard& piece : pieces_) piece.values.set_grad({});
  gather(memory_);
}

void ZeroRedundancyOptimizer::gather(const Tensor& all) const {
  std::vector<comm::WorkPtr> works;
  for (const Bucket& bucket : buckets_) {
    if (bucket.part == 0) continue;
    const std::int64_t mine = bucket.start + group_.rank() * bucket.part;
    bucket.mine.copy_(all.slice(0, mine, mine + bucket.part));
    works.push_back(
        group_.all_gather_async(sharded::buffer_of(bucket.mine),
                                sharded::buffer_of(all.slice(
                                    0, bucket.start, bucket.start + bucket.part * group_.size()))));
  }
  for (const comm::WorkPtr& work : works) work->wait();
}

double ZeroRedundancyOptimizer::clip_grad_norm(double max_norm) {
  if (gradients_ == ZeroGradients::all_reduced)
    return clip_grad_norm_(params(), max_norm).item<float>();
  std::vector<Tensor> counted;
  for (const ParameterShard& piece : pieces_)
    if (const Tensor grad = gradient_of(piece);
        grad.defined() && (piece.at >= 0 || group_.rank() == 0))  // a tail counts once
      counted.push_back(grad);
  return sharded::clip_norm(group_, counted, gradients(), max_norm);
}

// ---- state ----

Bytes ZeroRedundancyOptimizer::state_bytes() const {
  Bytes out;
  for (const auto& [key, tensor] : inner_->state_dict())
    if (sharded::is_state(key)) out += size_in_bytes(tensor);
  return out;
}

// Gathers each state tensor through a vector that is as long as all parameters together.
StateDict ZeroRedundancyOptimizer::state_dict() const {
  const StateDict mine = inner_->state_dict();
  const std::vector<std::string>& names = inner_->state_names();
  const auto of_piece = [&](std::size_t i, const std::string& name) -> const Tensor* {
    const auto found = mine.find(sharded::entry_of(i, name));
    return found == mine.end() ? nullptr : &found->second;
  };
  // For each parameter: the number of its updates, then one flag per state tensor, set if any rank
  // holds that tensor.
  const std::size_t width = 1 + names.size();
  std::vector<std::int64_t> known(params().size() * width, 0);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    std::int64_t* const row = known.data() + pieces_[i].parameter * width;
    if (const Tensor* step = of_piece(i, "step")) row[0] = step->item<std::int64_t>();
    for (std::size_t n = 0; n < names.size(); ++n)
      if (of_piece(i, names[n]) != nullptr) row[1 + n] = 1;
  }
  group_.all_reduce(std::span<std::int64_t>(known), comm::ReduceOp::max);

  StateDict out;
  for (const auto& [key, value] : mine)
    if (!sharded::is_state(key)) out[key] = value;
  out[sharded::kParams] = arange(std::ssize(params()));
  const Tensor all = empty_like(memory_);
  for (std::size_t n = 0; n < names.size(); ++n) {
    all.zero_();
    for (std::size_t i = 0; i < pieces_.size(); ++i)
      if (const Tensor* tensor = of_piece(i, names[n]))
        all.slice(0, pieces_[i].values.storage_offset(),
                  pieces_[i].values.storage_offset() + tensor->numel())
            .copy_(*tensor);
    gather(all);
    for (std::size_t b = 0; b < buckets_.size(); ++b)
      for (const BucketSlot& slot : plan_.buckets[b].slots) {
        const std::size_t p = at(slot.parameter);
        if (known[p * width + 1 + n] == 0) continue;
        const std::int64_t begin = buckets_[b].start + elements(slot.offset);
        out[sharded::entry_of(p, names[n])] =
            all.slice(0, begin, begin + elements(slot.count)).view(params()[p].sizes()).clone();
      }
  }
  for (std::size_t p = 0; p < params().size(); ++p)
    if (const std::int64_t steps = known[p * width]; steps > 0)
      out[sharded::entry_of(p, "step")] = from_vector<std::int64_t>({steps}, {});
  return out;
}

void ZeroRedundancyOptimizer::load_state_dict(const StateDict& state) {
  const auto fail = sharded::refuse_state;
  const auto numbers = state.find(sharded::kParams);
  if (numbers == state.end()) fail(fmt::format("'{}' is missing", sharded::kParams));
  if (numbers->second.numel() != std::ssize(params()))
    fail(fmt::format("it has {} parameters, this optimizer has {}", numbers->second.numel(),
                     params().size()));
  check_optimizer_state(state);
  StateDict mine;
  std::vector<std::vector<std::size_t>> pieces_of(params().size());
  for (std::size_t i = 0; i < pieces_.size(); ++i) pieces_of[pieces_[i].parameter].push_back(i);
  for (const auto& [key, value] : state) {
    if (!sharded::is_state(key)) {
      mine[key] = value;
      continue;
    }
    const auto [p, name] = sharded::parse_entry(key);
    if (p >= params().size()) fail("'" + key + "' belongs to no parameter");
    const bool whole = name != "step";
    const std::vector<std::string>& names = inner_->state_names();
    if (whole ? std::ranges::find(names, name) == names.end() : !inner_->counts_steps())
      fail("'" + key + "' is unknown to this optimizer");
    if (whole && value.sizes() != params()[p].sizes())
      fail(fmt::format("'{}' is {}, its parameter is {}", key, to_string(value.sizes()),
                       to_string(params()[p].sizes())));
    for (const std::size_t i : pieces_of[p])
      mine[sharded::entry_of(i, name)] =
          whole ? value.contiguous().view({-1}).slice(0, pieces_[i].from, pieces_[i].to) : value;
  }
  mine[sharded::kParams] = arange(std::ssize(pieces_));
  inner_->load_state_dict(mine);
  Optimizer::set_lr(inner_->lr());
}

}  // namespace ringsmith
