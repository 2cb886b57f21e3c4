#include "runtime/parallel/beyond/pipeline.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/autograd/node.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith {

using comm::PipelinePass;

namespace {

comm::Buffer message_of(const Tensor& t) {
  return {data_of(t), Elements(static_cast<std::size_t>(t.numel())), t.dtype()};
}

}  // namespace

// Each pair of neighbours makes two groups, one for each direction. Groups of disjoint pairs are
// made together: first the pairs (0, 1), (2, 3), ..., then (1, 2), (3, 4), ...
Pipeline::Pipeline(std::shared_ptr<comm::ProcessGroup> stages) : stages_(std::move(stages)) {
  const int stage = stages_->rank(), last = stages_->size() - 1;
  for (const PipelinePass pass : {PipelinePass::forward, PipelinePass::backward})
    for (const int first : {0, 1}) {
      const bool is_lower = stage % 2 == first;
      const bool has_pair = is_lower ? stage < last : stage > 0;
      const int lower = is_lower ? stage : stage - 1;
      const auto pair = stages_->split(has_pair ? lower : -1);
      if (!has_pair) continue;
      NeighbourLinks& links = pass == PipelinePass::forward ? forward_ : backward_;
      (is_lower == (pass == PipelinePass::forward) ? links.out : links.in).pair = pair;
    }
}

// After an error, a message may still be in flight from `sending`.
Pipeline::~Pipeline() {
  for (NeighbourLink* link : {&forward_.out, &backward_.out}) try {
      if (link->work && !link->work->is_completed()) link->pair->abort();
      if (link->work) link->work->wait();
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): run() has thrown the first one
    }
}

void Pipeline::send(NeighbourLink& link, const Tensor& t) {
  if (!link.pair) return;
  if (link.work) link.work->wait();
  link.sending = t.detach().to(link.pair->device()).contiguous();
  link.work = link.pair->send_async(message_of(link.sending), 1 - link.pair->rank());
}

Tensor Pipeline::receive(const NeighbourLink& link, const Shape& sizes, TensorOptions options) {
  const Tensor t = Tensor::empty(sizes, {options.dtype, link.pair->device()});
  link.pair->recv(message_of(t), 1 - link.pair->rank());
  return t.to(options.device);
}

void Pipeline::finish_sends() {
  for (NeighbourLink* link : {&forward_.out, &backward_.out}) {
    if (link->work) link->work->wait();
    link->work = nullptr;
    link->sending = Tensor();
  }
}

double Pipeline::run(const comm::PipelineSchedule& schedule, const PipelineStep& step) {
  require(schedule.stages == stages_->size() &&
              std::ssize(schedule.actions) == std::ptrdiff_t{stages_->size()},
          "pipeline: the schedule has " + std::to_string(schedule.stages) +
              " stages, the group has " + std::to_string(stages_->size()) + " ranks");
  most_stored_ = 0;
  struct StoredPass {
    Tensor input, output;
  };
  std::map<int, StoredPass> stored;
  std::vector<Tensor> losses;
  const bool is_first = !forward_.in.pair, is_last = !forward_.out.pair;

  const auto forward = [&](int m) {
    StoredPass pass;
    if (!is_first) {
      pass.input = receive(forward_.in, step.activation, step.options);
      pass.input.requires_grad_();
    }
    pass.output = step.forward(m, pass.input);
    if (is_last)
      losses.push_back(pass.output.detach());
    else
      require(pass.output.sizes() == step.activation && pass.output.dtype() == step.options.dtype,
              "pipeline: stage " + std::to_string(stages_->rank()) + " returned activations of " +
                  std::string(name_of(pass.output.dtype())) + to_string(pass.output.sizes()) +
                  ", announced as " + std::string(name_of(step.options.dtype)) +
                  to_string(step.activation));
    send(forward_.out, pass.output);
    stored[m] = std::move(pass);
    most_stored_ = std::max(most_stored_, static_cast<int>(stored.size()));
  };
  const auto backward = [&](int m, bool is_final) {
    const auto found = stored.find(m);
    require(found != stored.end(), "pipeline: the backward of microbatch " + std::to_string(m) +
                                       " was scheduled before its forward");
    const auto [input, output] = found->second;
    Tensor gradient;
    if (!is_last) gradient = receive(backward_.in, output.sizes(), output.options());
    if (is_final && step.before_last_backward) step.before_last_backward(output);
    output.backward(gradient);
    if (!is_first) send(backward_.out, input.grad());
    stored.erase(found);
  };

  const auto& actions = schedule.actions[static_cast<std::size_t>(stages_->rank())];
  auto backwards = std::ranges::count(actions, PipelinePass::backward, &comm::StageAction::pass);
  for (const comm::StageAction& action : actions)
    if (action.pass == PipelinePass::forward)
      forward(action.microbatch);
    else
      backward(action.microbatch, --backwards == 0);
  finish_sends();

  double sum = 0;
  for (const Tensor& loss : losses) sum += loss.item<float>();
  stages_->broadcast(std::span<double>(&sum, 1), stages_->size() - 1);
  return sum;
}

Tensor Pipeline::evaluate(const PipelineStep& step, const Shape& result) {
  const NoGradGuard no_grad;
  Tensor input;
  if (forward_.in.pair) input = receive(forward_.in, step.activation, step.options);
  Tensor out = step.forward(0, input);
  if (stages_->size() == 1) return out;
  if (forward_.out.pair) {
    send(forward_.out, out);
    out = Tensor::empty(result, step.options);
  }
  const Tensor all = out.to(stages_->device()).contiguous();
  stages_->broadcast(message_of(all), stages_->size() - 1);
  finish_sends();
  return all.to(step.options.device);
}

}  // namespace ringsmith
