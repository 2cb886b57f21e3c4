#include "runtime/optim/step_graph.hpp"

#include <string>
#include <utility>

#include "runtime/base/error.hpp"

namespace ringsmith {

namespace {

std::string dtype_and_shape(const Tensor& t) {
  return std::string(name_of(t.dtype())) + to_string(t.sizes());
}

}  // namespace

StepGraph::StepGraph(Optimizer& optimizer, Step step)
    : optimizer_(optimizer), step_(std::move(step)) {
  optimizer_.count_on_device();
}

Tensor StepGraph::operator()(const std::vector<Tensor>& batch) {
  fill(batch);
  if (eager_ < kEagerSteps) {
    ++eager_;
    return step_(batch_).detach();
  }
  if (!graph_) capture();
  replay();
  return loss_;
}

const DeviceGraph& StepGraph::graph() const {
  require(is_captured(), "this step has not been captured yet: the first " +
                             std::to_string(kEagerSteps) + " steps run eagerly");
  return *graph_;
}

void StepGraph::fill(const std::vector<Tensor>& batch) {
  if (batch_.empty()) {
    const Device device = optimizer_.params().front().device();
    for (const Tensor& t : batch) batch_.push_back(Tensor::empty(t.sizes(), {t.dtype(), device}));
  }
  require(batch.size() == batch_.size(), "a captured step takes " + std::to_string(batch_.size()) +
                                             " tensors, got " + std::to_string(batch.size()));
  for (std::size_t i = 0; i < batch.size(); ++i)
    require(batch[i].sizes() == batch_[i].sizes() && batch[i].dtype() == batch_[i].dtype(),
            "tensor " + std::to_string(i) + " of the batch is " + dtype_and_shape(batch[i]) +
                ", but the step is captured for " + dtype_and_shape(batch_[i]) +
                ": use another StepGraph for another shape");
  for (std::size_t i = 0; i < batch.size(); ++i) batch_[i].copy_(batch[i]);
}

void StepGraph::capture() {
  optimizer_.zero_grad();  // so that the captured step reuses the gradients' memory
  optimizer_.update_device_counts();
  optimizer_.captured_.clear();
  try {
    graph_.emplace(batch_.front().device(), [&] { loss_ = step_(batch_).detach(); });
  } catch (...) {
    loss_ = {};
    optimizer_.zero_grad();  // no kernel has written the gradients
    throw;
  }
  gradients_.clear();
  for (const Tensor& p : optimizer_.params()) gradients_.push_back(p.grad());
  captured_addresses_ = addresses();
}

void StepGraph::replay() {
  require(addresses() == captured_addresses_,
          "the parameters or the optimizer's state have moved since the step was captured, e.g. by "
          "to() or load_state_dict(): use another StepGraph");
  optimizer_.update_device_counts();
  graph_->launch();
  optimizer_.replayed();
  for (std::size_t i = 0; i < gradients_.size(); ++i)
    optimizer_.params()[i].set_grad(gradients_[i]);
}

std::vector<const void*> StepGraph::addresses() const {
  std::vector<const void*> all;
  const auto add = [&](const Tensor& t) { all.push_back(t.defined() ? data_of(t) : nullptr); };
  for (const Tensor& p : optimizer_.params()) add(p);
  for (const std::vector<Tensor>& of_name : optimizer_.state_)
    for (const Tensor& state : of_name) add(state);
  return all;
}

}  // namespace ringsmith
