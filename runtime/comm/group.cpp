#include "runtime/comm/group.hpp"

#include "runtime/base/tracer.hpp"
#include "runtime/comm/subgroup.hpp"

namespace ringsmith::comm {

HostGroup::HostGroup(std::shared_ptr<Bootstrap> bootstrap, const GroupOptions& options)
    : host_(std::move(bootstrap), options),
      engine_(host_),
      check_(host_.rank(), host_.size()),
      options_(options),
      queue_([this](Transfer& transfer, bool foreground) { execute(transfer, foreground); },
             [this] { host_.hold_core(true); }) {}

void HostGroup::number(Transfer& transfer) {
  const bool message = transfer.call.op == Op::send || transfer.call.op == Op::recv;
  transfer.sequence = message ? messages_++ : collectives_++;
}

void HostGroup::execute(Transfer& transfer, bool foreground) {
  number(transfer);
  const trace::Span span(transfer.call.name(), trace::Category::comm,
                         {"bytes", static_cast<std::int64_t>(transfer.call.bytes())});
  host_.hold_core(foreground);
  engine_.run(transfer);
}

std::shared_ptr<ProcessGroup> HostGroup::new_group(const std::vector<int>& ranks) {
  return make_subgroup(*this, host_.bootstrap(), agreed_members(*this, ranks));
}
std::shared_ptr<ProcessGroup> HostGroup::split(int colour) {
  return make_subgroup(*this, host_.bootstrap(), members_of_colour(*this, colour));
}

Algorithm HostGroup::algorithm_for(Bytes size) const {
  for (const auto& [up_to, algorithm] : by_size_)
    if (size <= up_to) return algorithm;
  return by_size_.empty() ? options_.algorithm : by_size_.back().second;
}

void HostGroup::all_reduce(ConstBuffer input, Buffer output, ReduceOp op) {
  run(check_.all_reduce(input, output, op, algorithm_for(input.size())));
}
WorkPtr HostGroup::all_reduce_async(ConstBuffer input, Buffer output, ReduceOp op) {
  return push(check_.all_reduce(input, output, op, algorithm_for(input.size())));
}

void HostGroup::reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op) {
  run(check_.reduce_scatter(input, output, op, options_.algorithm));
}
WorkPtr HostGroup::reduce_scatter_async(ConstBuffer input, Buffer output, ReduceOp op) {
  return push(check_.reduce_scatter(input, output, op, options_.algorithm));
}

void HostGroup::all_gather(ConstBuffer input, Buffer output) {
  run(check_.all_gather(input, output));
}
WorkPtr HostGroup::all_gather_async(ConstBuffer input, Buffer output) {
  return push(check_.all_gather(input, output));
}

void HostGroup::broadcast(Buffer data, int root) { run(check_.broadcast(data, root)); }
WorkPtr HostGroup::broadcast_async(Buffer data, int root) {
  return push(check_.broadcast(data, root));
}

void HostGroup::reduce(ConstBuffer input, Buffer output, ReduceOp op, int root) {
  run(check_.reduce(input, output, op, root, options_.algorithm));
}
WorkPtr HostGroup::reduce_async(ConstBuffer input, Buffer output, ReduceOp op, int root) {
  return push(check_.reduce(input, output, op, root, options_.algorithm));
}

void HostGroup::gather(ConstBuffer input, Buffer output, int root) {
  run(check_.gather(input, output, root));
}
WorkPtr HostGroup::gather_async(ConstBuffer input, Buffer output, int root) {
  return push(check_.gather(input, output, root));
}

void HostGroup::scatter(ConstBuffer input, Buffer output, int root) {
  run(check_.scatter(input, output, root));
}
WorkPtr HostGroup::scatter_async(ConstBuffer input, Buffer output, int root) {
  return push(check_.scatter(input, output, root));
}

void HostGroup::all_to_all(ConstBuffer input, Buffer output) {
  run(check_.all_to_all(input, output));
}
WorkPtr HostGroup::all_to_all_async(ConstBuffer input, Buffer output) {
  return push(check_.all_to_all(input, output));
}

void HostGroup::send(ConstBuffer data, int peer) { run(check_.send(data, peer)); }
WorkPtr HostGroup::send_async(ConstBuffer data, int peer) { return push(check_.send(data, peer)); }

void HostGroup::recv(Buffer data, int peer) { run(check_.recv(data, peer)); }
WorkPtr HostGroup::recv_async(Buffer data, int peer) { return push(check_.recv(data, peer)); }

void HostGroup::barrier(Site site) { run(check_.barrier(site)); }
WorkPtr HostGroup::barrier_async(Site site) { return push(check_.barrier(site)); }

// The running call looks for the mark and reports it; without one, this thread does.
void HostGroup::abort(Site site) {
  host_.mark_aborted(site);
  queue_.take_turn([this] { host_.report_aborted(); });
}

}  // namespace ringsmith::comm
