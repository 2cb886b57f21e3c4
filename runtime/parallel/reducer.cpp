#include "runtime/parallel/reducer.hpp"

#include <algorithm>
#include <unordered_set>

#include "runtime/autograd/tensor_grad.hpp"
#include "runtime/base/tracer.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith {

namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

Device device_of(const std::vector<Tensor>& parameters) {
  require(!parameters.empty(),
          "DistributedDataParallel has nothing to do: no parameter requires a gradient");
  for (const Tensor& p : parameters)
    (void)raw::common_device("DistributedDataParallel", parameters[0], p);
  return parameters[0].device();
}

std::vector<BucketItem> items_of(const std::vector<Tensor>& parameters) {
  std::vector<BucketItem> items;
  items.reserve(parameters.size());
  for (const Tensor& p : parameters)
    items.push_back({Elements(static_cast<std::size_t>(p.numel())), p.dtype()});
  return items;
}

}  // namespace

Reducer::Reducer(std::vector<std::string> names, std::vector<Tensor> parameters,
                 std::shared_ptr<comm::ProcessGroup> group, ReducerOptions options)
    : names_(std::move(names)),
      parameters_(std::move(parameters)),
      group_(std::move(group)),
      options_(options),
      items_(items_of(parameters_)),
      divisor_(group_->size()),
      device_(device_of(parameters_)),
      memory_(group_, device_, arena_size(items_)),
      usage_(parameters_.size(), group_),
      clock_(device_) {
  require(options_.op == comm::ReduceOp::avg || options_.op == comm::ReduceOp::sum,
          "gradients can be averaged (avg) or summed (sum) over the ranks, nothing else");
  ready_.resize(parameters_.size());
  unreachable_.resize(parameters_.size());
  kept_.resize(parameters_.size());
  views_.resize(parameters_.size());
  if (options_.static_graph) {
    graph_.emplace(parameters_.size());
    options_.find_unused_parameters = false;
  }
  install(initial_plan(items_, options_.caps, options_.find_unused_parameters));
  for (int p = 0; p < static_cast<int>(parameters_.size()); ++p) {
    hooks_.push_back(register_post_accumulate_grad_hook(
        parameters_[at(p)], [this, p](const Tensor&) { on_gradient(p); }, HookTurn::last));
    hooks_.push_back(register_post_accumulate_grad_hook(
        parameters_[at(p)], [this](const Tensor&) { on_skip(); }, HookTurn::skipped));
  }
}

Reducer::~Reducer() {
  // Peers may still be reducing from the arena.
  for (const comm::WorkPtr& work : works_) try {
      if (memory_.overlaps()) work->wait();  // otherwise nothing was started
    } catch (const Error&) {                 // reported elsewhere; here only its end matters
      continue;
    }
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    for (const std::size_t h : {2 * p, 2 * p + 1}) remove_hook(parameters_[p], hooks_[h]);
    if (parameters_[p].requires_grad()) set_grad_target(parameters_[p], {});
  }
}

void Reducer::register_comm_hook(CommHook hook) {
  require(!hook_.call, "a communication hook is registered already, '" + hook_.name +
                           "': DistributedDataParallel takes one; call both from one function");
  require(forwards_ == 0,
          "communication hook '" + hook.name + "': register it before the first forward()");
  require(static_cast<bool>(hook.call),
          "communication hook '" + hook.name + "' is empty: register a function");
  hook_ = std::move(hook);
}

// ---- forward ----

void Reducer::begin_forward() {
  if (phase_ == Phase::reducing)
    throw Error("the last backward() through DistributedDataParallel did not end: " +
                std::to_string(next_) + " of " + std::to_string(plan_.buckets.size()) +
                " buckets were launched. After an error in backward(), construct it again");
  if (synchronising_) rebuild_if_due();
}

void Reducer::end_forward(const std::vector<Tensor>& outputs) {
  local_forward_ = !synchronising_;
  if (!synchronising_) return;
  ++forwards_;
  if (options_.find_unused_parameters) {
    std::unordered_set<const AutogradMeta*> reached;
    for (const Tensor& leaf : reachable_leaves(outputs)) reached.insert(leaf.autograd_meta().get());
    // Several forwards may precede one backward. A parameter is unreachable if none reaches it.
    const bool first = phase_ != Phase::armed;
    for (std::size_t p = 0; p < parameters_.size(); ++p)
      unreachable_[p] =
          (first || unreachable_[p]) && reached.count(parameters_[p].autograd_meta().get()) == 0;
  }
  phase_ = Phase::armed;
}

// ---- backward ----

void Reducer::on_gradient(int parameter) {
  if (!parameters_[at(parameter)].grad().defined()) return;
  usage_.mark(parameter);
  if (phase_ == Phase::idle) {
    if (local_forward_ || !synchronising_) return;
    throw UsageError("parameter '" + name_of_parameter(parameter) +
                     "' got a gradient that DistributedDataParallel would leave unaveraged: call "
                     "its forward() before each backward(), once, or use no_sync()");
  }
  if (phase_ == Phase::armed) {
    start_reducing();
    queue_backward_callback([this] {
      if (graph_) fault_ = graph_->end(names_, step_ + 1);
      finish_backward();
    });
  }
  if (graph_ && !graph_->arrive(parameter)) return;
  if (ready_[at(parameter)]) {
    if (fault_.empty())
      fault_ = "parameter '" + name_of_parameter(parameter) +
               (unreachable_[at(parameter)]
                    ? "' got a gradient, but the outputs of forward() do not depend on it: return "
                      "every tensor that the loss is computed from"
                    : "' got two gradients in one backward, as when a backward() inside of it "
                      "reaches the parameter again: set static_graph");
    return;
  }
  adopt_gradient(parameter);
  if (device_.is_cuda())
    if (const Stream s = Stream::current(device_); std::ranges::find(streams_, s) == streams_.end())
      streams_.push_back(s);
  mark_ready(parameter);
}

// Called for every parameter of the optimizer; only the first call after a backward has an effect.
void Reducer::on_skip() {
  if (!std::exchange(may_skip_, false)) return;
  ++skipped_;
  if (hook_.skipped) hook_.skipped();
}

void Reducer::start_reducing() {
  phase_ = Phase::reducing;
  streams_.clear();
  clock_.restart();
  statistics_ = {.step = step_ + 1, .buckets = std::vector<BucketTimes>(plan_.buckets.size())};
  ready_.assign(ready_.size(), false);
  if (graph_) graph_->begin();
  last_ready_order_.clear();
  works_.clear();
  next_ = 0;
  pending_.clear();
  for (const BucketLayout& bucket : plan_.buckets) pending_.push_back(bucket.slots.size());
  for (int p = 0; p < static_cast<int>(parameters_.size()); ++p)
    if (unreachable_[at(p)] || (graph_ && graph_->unused(p))) {
      provide_missing(p);
      mark_ready(p);
    }
}

void Reducer::mark_ready(int parameter) {
  ready_[at(parameter)] = true;
  last_ready_order_.push_back(parameter);
  --pending_[at(plan_.place[at(parameter)].bucket)];
  launch_ready_buckets();
}

void Reducer::launch_ready_buckets() {
  while (next_ < plan_.buckets.size() && pending_[next_] == 0) {
    // The last bucket completes with backward: there is no computation left to overlap with, and
    // finish_backward() reduces it without a thread switch.
    const bool hides = overlaps_now() && next_ + 1 < plan_.buckets.size();
    for (const Stream& s : streams_) Stream::current(device_).wait(s);
    clock_.mark(statistics_.buckets[next_].launched);
    if (hides && exchanges()) works_.push_back(reduce_async(next_));
    ++next_;
  }
}

comm::WorkPtr Reducer::reduce_async(std::size_t bucket) {
  if (hook_.call) return run_hook(hook_, grad_bucket(bucket), fault_);
  const BucketLayout& b = plan_.buckets[bucket];
  return memory_.all_reduce_async(b.start, b.count, b.dtype, prepare(bucket));
}

// For an average whose divisor is not the group's size, scales this rank's contribution and returns
// sum; otherwise returns the operation unchanged.
comm::ReduceOp Reducer::prepare(std::size_t bucket) const {
  if (options_.op != comm::ReduceOp::avg || divisor_ == group_->size()) return options_.op;
  raw::scalar_into(raw::Scalar::mul, buffer_of(bucket), 1.0 / divisor_, "average");
  return comm::ReduceOp::sum;
}

Tensor Reducer::buffer_of(std::size_t bucket) const {
  const BucketLayout& b = plan_.buckets[bucket];
  return Tensor::from_storage(memory_.storage(), {static_cast<std::int64_t>(b.count.value)}, {1},
                              static_cast<std::int64_t>(b.start.value / size_of(b.dtype)), b.dtype);
}

GradBucket Reducer::grad_bucket(std::size_t bucket) const {
  GradBucket out{
      static_cast<int>(bucket), bucket + 1 == plan_.buckets.size(), buffer_of(bucket), {}, {}, 0};
  for (const BucketSlot& slot : plan_.buckets[bucket].slots) {
    out.gradients.push_back(views_[at(slot.parameter)]);
    out.parameters.push_back(parameters_[at(slot.parameter)]);
  }
  out.loss_scale = loss_scale(out.parameters.front());
  return out;
}

// Runs when the graph is done. Checks only after all collectives are complete, so that no rank
// throws while another rank still waits for it.
void Reducer::finish_backward() {
  clock_.mark(statistics_.compute_end);
  for (int p = 0; p < static_cast<int>(parameters_.size()); ++p)
    if (!ready_[at(p)]) {
      provide_missing(p);
      mark_ready(p);
    }
  // Completing a hook's future may call further collectives, so every rank calls all hooks before
  // it waits for the first future. This keeps the order of collectives the same on all ranks.
  while (hook_.call && works_.size() < plan_.buckets.size())
    works_.push_back(reduce_async(works_.size()));
  trace::Span waiting("wait for gradients", trace::Category::wait);
  for (std::size_t b = 0; b < works_.size(); ++b) {
    works_[b]->wait();
    clock_.mark(statistics_.buckets[b].collected);
  }
  for (std::size_t b = works_.size(); b < plan_.buckets.size(); ++b) {
    if (exchanges()) {
      clock_.mark(statistics_.buckets[b].launched);
      const BucketLayout& bucket = plan_.buckets[b];
      memory_.all_reduce(bucket.start, bucket.count, bucket.dtype, prepare(b));
    }
    clock_.mark(statistics_.buckets[b].collected);
  }
  ++step_;
  may_skip_ = true;
  usage_.exchange(forwards_, fault_);
  waiting.end();
  clock_.mark(statistics_.finished);
  phase_ = Phase::idle;
  settle_unused();
  usage_.clear();
}

void Reducer::settle_unused() {
  if (usage_.used_everywhere()) return;
  if (!allows_unused()) {
    const std::string unused = usage_.describe_unused(names_);
    usage_.clear();
    throw UsageError("backward pass " + std::to_string(step_) + ": " + unused +
                     "; use them in the loss, freeze them, or set find_unused_parameters");
  }
  for (int p = 0; p < static_cast<int>(parameters_.size()); ++p) {
    const Tensor& parameter = parameters_[at(p)];
    if (usage_.marked(p)) continue;
    if (usage_.used_anywhere(p)) {
      parameter.set_grad(views_[at(p)]);
    } else if (kept_[at(p)].defined()) {
      views_[at(p)].copy_(kept_[at(p)]);
    }
    kept_[at(p)] = {};
  }
}

// Fills the slot of a parameter that gets no gradient in this backward: with .grad from earlier
// passes, or with zeros.
void Reducer::provide_missing(int parameter) {
  if (!parameters_[at(parameter)].grad().defined()) {
    views_[at(parameter)].zero_();
    return;
  }
  adopt_gradient(parameter);
  if (allows_unused() && !usage_.marked(parameter))
    kept_[at(parameter)] = views_[at(parameter)].clone();
}

// Makes .grad a view of the parameter's slot. Backward has already written there, unless the
// program set a gradient itself.
void Reducer::adopt_gradient(int parameter) {
  const Tensor grad = parameters_[at(parameter)].grad();
  const Tensor& view = views_[at(parameter)];
  if (data_of(grad) == data_of(view) && grad.is_contiguous()) return;
  view.copy_(grad);
  parameters_[at(parameter)].set_grad(view);
}

bool Reducer::all_launched_are_in() const {
  return std::ranges::all_of(works_,
                             [](const comm::WorkPtr& work) { return work->is_completed(); });
}

// ---- without inputs ----

void Reducer::shadow_forward() { rebuild_if_due(); }

void Reducer::shadow_backward() {
  const auto drop_gradients = [this] {
    for (const Tensor& p : parameters_) p.set_grad({});
  };
  drop_gradients();
  ++forwards_;
  start_reducing();
  if (!allows_unused())  // other ranks may miss a gradient; this rank never does
    for (int p = 0; p < static_cast<int>(parameters_.size()); ++p) usage_.mark(p);
  finish_backward();
  // The other ranks' GradScalers skip a step with non-finite gradients and thereby call on_skip().
  // This rank takes no step, so it must call on_skip() itself.
  for (std::size_t b = 0; may_skip_ && b < plan_.buckets.size(); ++b)
    if (!raw::all_finite(buffer_of(b))) on_skip();
  drop_gradients();
}

// ---- buckets ----

// Due after the first backward that was not skipped; with a static graph after the second, because
// the first marks all parameters ready only at its end.
bool Reducer::rebuild_is_due() const {
  return !rebuilt_ && !options_.find_unused_parameters && step_ - skipped_ >= (graph_ ? 2U : 1U);
}

std::vector<int> Reducer::ready_order() const {
  if (rebuilt_) return rebuilt_order_;
  return rebuild_is_due() ? last_ready_order_ : std::vector<int>();
}

void Reducer::rebuild_if_due() {
  if (!rebuild_is_due()) return;
  std::vector<std::int32_t> order(last_ready_order_.begin(), last_ready_order_.end());
  group_->broadcast(std::span<std::int32_t>(order), 0);
  rebuild_in({order.begin(), order.end()});
}

void Reducer::rebuild_in(std::vector<int> order) {
  install(rebuilt_plan(items_, options_.caps, order));
  rebuilt_order_ = std::move(order);
  rebuilt_ = true;
}

// Moves existing gradients to their new slots, through separate copies because old and new slots
// share one arena. After a zero_grad() that sets them to none there is nothing to move.
void Reducer::install(BucketPlan plan) {
  std::vector<Tensor> held(parameters_.size());
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const Tensor grad = parameters_[p].grad();
    if (!grad.defined()) continue;
    held[p] = grad.storage() == memory_.storage() ? grad.clone() : grad;
  }
  plan_ = std::move(plan);
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const BucketLayout& bucket = plan_.buckets[at(plan_.place[p].bucket)];
    const Elements offset = Elements(bucket.start.value / size_of(bucket.dtype)) +
                            bucket.slots[at(plan_.place[p].slot)].offset;
    const Shape& sizes = parameters_[p].sizes();
    views_[p] = Tensor::from_storage(memory_.storage(), sizes, contiguous_strides(sizes),
                                     static_cast<std::int64_t>(offset.value), bucket.dtype);
    if (held[p].defined()) {
      views_[p].copy_(held[p]);
      parameters_[p].set_grad(views_[p]);
    }
    set_grad_target(parameters_[p], views_[p]);
  }
}

void ReducerClock::restart() {
  open_.clear();
  start_ = std::chrono::steady_clock::now();
  if (device_.is_cuda()) begin_ = Event::record(Stream::current(device_), Event::Timing::on);
}

void ReducerClock::mark(double& seconds) {
  if (device_.is_cuda())
    open_.emplace_back(&seconds, Event::record(Stream::current(device_), Event::Timing::on));
  else
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void ReducerClock::settle() {
  for (const auto& [seconds, event] : open_) {
    event.synchronize();
    *seconds = seconds_between(begin_, event);
  }
  open_.clear();
}

}  // namespace ringsmith
