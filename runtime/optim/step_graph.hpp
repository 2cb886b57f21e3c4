// A training step as a CUDA graph: one launch a step instead of one for each kernel.
//
//   AdamW optimizer(model.parameters(), options);
//   StepGraph step(optimizer, [&](const std::vector<Tensor>& batch) {
//     optimizer.zero_grad();
//     const Tensor loss = cross_entropy(model(batch[0]), batch[1]);
//     loss.backward();
//     clip_grad_norm_(optimizer.params(), 1.0);
//     optimizer.step();
//     return loss;
//   });
//   for batches:  optimizer.set_lr(schedule(i));  loss = step({inputs, targets});
//
//   call 1, 2      copy the batch into the buffers, run the step eagerly
//   call 3         copy the batch, capture the step (nothing runs), launch the graph
//   call 4, ...    copy the batch, launch the graph
//
// The eager steps create all that the later ones reuse: AdamW's state, the libraries' handles, the
// memory. The results of every call have the same bits as an eager step, because the kernels are
// the same.
//
// What changes between steps is not in the graph but in memory that it reads: the batch in fixed
// buffers, the learning rate, and the step count, which a kernel of the graph advances
// (Optimizer::count_on_device). What the host must see is outside of the graph, too: the loss is
// read after the launch, so a step with a loss that is not finite has been applied by then; errors
// that kernels find, such as a bad token, are thrown like those of eager steps (findings.hpp).
// graph.hpp has the calls that a captured step cannot make; each is refused by its name.
//
// The parameters, the optimizer and everything that the step reads must outlive the StepGraph. One
// rank on one GPU: collectives cannot be captured.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "runtime/device/graph.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith {

class StepGraph {
 public:
  // Runs zero_grad, forward, backward and the optimizer's step, and returns the loss.
  using Step = std::function<Tensor(const std::vector<Tensor>& batch)>;
  static constexpr int kEagerSteps = 2;

  // Throws UsageError unless the parameters are on one GPU and the optimizer is Adam or AdamW.
  StepGraph(Optimizer& optimizer, Step step);

  // Runs the step on the batch, whose tensors may be on the CPU or on the GPU. Returns the loss,
  // without a tape. The next call overwrites it, as it does the gradients in .grad: read or copy
  // them before, e.g. with Fetch, which does not wait.
  //
  // Throws UsageError if a tensor of the batch has another shape or dtype than in the first call,
  // if parameters or the optimizer's state have moved since the capture, or if the step cannot be
  // captured. Nothing has run then.
  Tensor operator()(const std::vector<Tensor>& batch);

  [[nodiscard]] bool is_captured() const { return graph_.has_value(); }
  // The graph; UsageError before the third call.
  [[nodiscard]] const DeviceGraph& graph() const;

 private:
  void fill(const std::vector<Tensor>& batch);
  void capture();
  void replay();
  // The memory whose addresses are in the graph: parameters, and their state in the optimizer.
  [[nodiscard]] std::vector<const void*> addresses() const;

  Optimizer& optimizer_;
  Step step_;
  int eager_ = 0;  // steps so far
  std::vector<Tensor> batch_;
  Tensor loss_;
  std::vector<Tensor> gradients_;  // of the captured step, by parameter
  std::vector<const void*> captured_addresses_;
  std::optional<DeviceGraph> graph_;
};

}  // namespace ringsmith
