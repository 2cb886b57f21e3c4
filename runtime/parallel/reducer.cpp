#include "runtime/parallel/reducer.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/tracer.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith {

namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

ReducerOptions consistent(ReducerOptions options) {
  if (options.static_graph) options.find_unused_parameters = false;
  return options;
}

// With a static graph, the first backward handles all parameters at its end, in no useful order.
int passes_before_rebuild(const ReducerOptions& options) {
  if (options.find_unused_parameters) return 0;
  return options.static_graph ? 2 : 1;
}

}  // namespace

Reducer::Reducer(std::vector<std::string> names, std::vector<Tensor> parameters,
                 std::shared_ptr<comm::ProcessGroup> group, ReducerOptions options)
    : options_(consistent(options)),
      buckets_(std::move(names), std::move(parameters), std::move(group), options_.op),
      missing_(buckets_, options_.find_unused_parameters, options_.static_graph),
      rebuild_(options_.caps, passes_before_rebuild(options_)),
      clock_(buckets_.parameters()[0].device()),
      ready_(buckets_.parameters().size()) {
  require(options_.op == comm::ReduceOp::avg || options_.op == comm::ReduceOp::sum,
          "gradients can be averaged (avg) or summed (sum) over the ranks, nothing else");
  buckets_.install(initial_plan(items(), options_.caps, options_.find_unused_parameters));
  for (std::size_t p = 0; p < ready_.size(); ++p) {
    const Tensor& parameter = buckets_.parameters()[p];
    handles_.push_back(register_post_accumulate_grad_hook(
        parameter, [this, p](const Tensor&) { on_gradient(static_cast<int>(p)); }, HookTurn::last));
    handles_.push_back(register_post_accumulate_grad_hook(
        parameter, [this](const Tensor&) { on_skip(); }, HookTurn::skipped));
  }
}

Reducer::~Reducer() {
  // Peers may still be reducing from the buckets.
  for (const comm::WorkPtr& work : works_) try {
      if (buckets_.memory().overlaps()) work->wait();  // otherwise no work was started
    } catch (const Error&) {  // reported elsewhere; here it only matters that the work has ended
      continue;
    }
  for (std::size_t p = 0; p < ready_.size(); ++p)
    for (const std::size_t h : {2 * p, 2 * p + 1})
      remove_hook(buckets_.parameters()[p], handles_[h]);
}

// ---- forward ----

void Reducer::begin_forward() {
  if (phase_ == Phase::reducing)
    throw Error("the last backward() through DistributedDataParallel did not end: " +
                std::to_string(next_) + " of " + std::to_string(buckets_.count()) +
                " buckets were launched. After an error in backward(), construct it again");
  if (synchronising_) rebuild_.run_if_due(buckets_);
}

void Reducer::end_forward(const std::vector<Tensor>& outputs) {
  local_forward_ = !synchronising_;
  if (!synchronising_) return;
  ++forwards_;
  missing_.after_forward(outputs, phase_ != Phase::armed);
  phase_ = Phase::armed;
}

// ---- backward: a gradient arrives, and buckets that are full are launched ----

void Reducer::on_gradient(int parameter) {
  if (!buckets_.parameters()[at(parameter)].grad().defined()) return;
  missing_.mark(parameter);
  if (phase_ == Phase::idle) {
    if (local_forward_ || !synchronising_) return;
    throw UsageError("parameter '" + buckets_.names()[at(parameter)] +
                     "' got a gradient that DistributedDataParallel would leave unaveraged: call "
                     "its forward() before each backward(), once, or use no_sync()");
  }
  if (phase_ == Phase::armed) {
    begin_backward();
    queue_backward_callback([this] {
      missing_.end_graph(clock_.step());
      finish_backward();
    });
  }
  if (!missing_.is_complete(parameter)) return;
  if (ready_[at(parameter)]) return missing_.second_gradient(parameter);
  buckets_.arrived(parameter);
  mark_ready(parameter);
}

void Reducer::begin_backward() {
  phase_ = Phase::reducing;
  clock_.begin_backward(buckets_.count());
  buckets_.begin_backward();
  missing_.begin_backward();
  rebuild_.begin_backward();
  ready_.assign(ready_.size(), false);
  works_.clear();
  next_ = 0;
  pending_.clear();
  for (const BucketLayout& bucket : plan().buckets) pending_.push_back(bucket.slots.size());
  for (int p = 0; p < static_cast<int>(ready_.size()); ++p)
    if (missing_.known(p)) {
      missing_.provide(p);
      mark_ready(p);
    }
}

void Reducer::mark_ready(int parameter) {
  ready_[at(parameter)] = true;
  rebuild_.arrived(parameter);
  --pending_[at(plan().place[at(parameter)].bucket)];
  launch_ready_buckets();
}

void Reducer::launch_ready_buckets() {
  while (next_ < buckets_.count() && pending_[next_] == 0) {
    // There is no computation left for the last bucket to overlap with: finish_backward() reduces
    // it without a thread switch.
    const bool hides = overlaps_now() && next_ + 1 < buckets_.count();
    buckets_.wait_for_gradients();
    clock_.launched(next_);
    if (hides && exchanges()) works_.push_back(reduce_async(next_));
    ++next_;
  }
}

bool Reducer::overlaps_now() const {
  return options_.overlap && !(options_.alternate && clock_.step() % 2 == 1);
}

comm::WorkPtr Reducer::reduce_async(std::size_t bucket) {
  if (hook_.call) return run_hook(hook_, buckets_.for_hook(bucket), missing_.fault());
  return buckets_.reduce_async(bucket);
}

// Reports errors only after all collectives, so that no rank throws while another waits for it.
void Reducer::finish_backward() {
  clock_.compute_ended();
  for (int p = 0; p < static_cast<int>(ready_.size()); ++p)
    if (!ready_[at(p)]) {
      missing_.provide(p);
      mark_ready(p);
    }
  // Completing a hook's future may call further collectives. Every rank therefore calls all hooks
  // before it waits for the first future, so that the order of collectives is the same on all
  // ranks.
  while (hook_.call && works_.size() < buckets_.count())
    works_.push_back(reduce_async(works_.size()));
  trace::Span waiting("wait for gradients", trace::Category::wait);
  for (std::size_t b = 0; b < works_.size(); ++b) {
    works_[b]->wait();
    clock_.collected(b);
  }
  for (std::size_t b = works_.size(); b < buckets_.count(); ++b) {
    if (exchanges()) {
      clock_.launched(b);
      buckets_.reduce(b);
    }
    clock_.collected(b);
  }
  rebuild_.backward_done();
  missing_.exchange(forwards_);
  waiting.end();
  clock_.finished();
  phase_ = Phase::idle;
  missing_.settle(clock_.step());
}

bool Reducer::all_launched_are_in() const {
  return std::ranges::all_of(works_,
                             [](const comm::WorkPtr& work) { return work->is_completed(); });
}

// ---- a communication hook, and steps that are skipped ----

void Reducer::register_comm_hook(CommHook hook) {
  require(!hook_.call, "a communication hook is registered already, '" + hook_.name +
                           "': DistributedDataParallel takes one; call both from one function");
  require(forwards_ == 0,
          "communication hook '" + hook.name + "': register it before the first forward()");
  require(static_cast<bool>(hook.call),
          "communication hook '" + hook.name + "' is empty: register a function");
  hook_ = std::move(hook);
}

// Called for every parameter of the optimizer; only the first call after a backward has an effect.
void Reducer::on_skip() {
  if (rebuild_.skip() && hook_.skipped) hook_.skipped();
}

// ---- without inputs ----

void Reducer::shadow_backward() {
  const auto drop_gradients = [this] {
    for (const Tensor& p : parameters()) p.set_grad({});
  };
  drop_gradients();
  ++forwards_;
  begin_backward();
  missing_.pretend_all_used();
  finish_backward();
  // The other ranks' GradScalers skip a step with non-finite gradients and thereby call on_skip().
  // This rank takes no step, so it calls on_skip() itself.
  bool finite = true;
  for (std::size_t b = 0; finite && b < buckets_.count(); ++b)
    finite = raw::all_finite(buckets_.buffer(b));
  if (!finite) on_skip();
  drop_gradients();
}

}  // namespace ringsmith
