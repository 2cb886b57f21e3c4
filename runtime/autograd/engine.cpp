#include "runtime/autograd/engine.hpp"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <utility>

#include "runtime/autograd/tensor_grad.hpp"
#include "runtime/device/profiler.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith {

namespace {

// Gradients that flow into a node: the number still missing, and the sum so far for each output.
struct InputBuffer {
  int waiting = 0;
  bool touched = false;
  std::vector<Tensor> grads;
};

struct Later {
  bool operator()(const Node* a, const Node* b) const { return a->sequence < b->sequence; }
};

class Run;
thread_local Run* current = nullptr;

// One backward(). A hook may start a nested run; when the nested run ends, the outer run is current
// again.
class Run {
 public:
  Run(const std::vector<Edge>& roots, bool retain_graph) : retain_graph_(retain_graph) {
    std::vector<Node*> stack;
    const auto visit = [&](Node* node) {
      const auto [buffer, fresh] = buffers_.try_emplace(node);
      if (fresh) {
        buffer->second.grads.resize(static_cast<std::size_t>(node->outputs));
        stack.push_back(node);
      }
      return &buffer->second;
    };
    for (const Edge& root : roots) ++visit(root.node.get())->waiting;
    while (!stack.empty()) {
      const Node* node = stack.back();
      stack.pop_back();
      if (node->consumed)
        throw Error("backward through " + node->name() +
                    " a second time: its saved tensors were freed by the first; call backward "
                    "once, or the first time with retain_graph");
      for (const Edge& edge : node->edges)
        if (edge) ++visit(edge.node.get())->waiting;
    }
    outer_ = std::exchange(current, this);
  }
  ~Run() { current = outer_; }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Passes grad, which was produced on its device's current stream, to the edge's node. An
  // AccumulateGrad runs as soon as its last gradient arrives, so that hooks are called early.
  void deliver(const Edge& edge, Tensor grad) {
    Node* node = edge.node.get();
    InputBuffer& buffer = buffers_.at(node);
    order_streams(node, grad);
    const StreamGuard on(node->stream);
    if (grad.defined()) {
      buffer.touched = true;
      Tensor& slot = buffer.grads.at(static_cast<std::size_t>(edge.input));
      if (!slot.defined()) {
        slot = std::move(grad);
      } else {
        if (!slot.is_sole_owner() || !slot.is_contiguous()) slot = slot.clone();
        const profile::Operation operation("add gradients");
        raw::add_into(slot, grad);
      }
    }
    if (--buffer.waiting > 0) return;
    if (node->sequence == autograd::kAccumulateSequence)
      node->apply(std::move(buffer.grads));
    else
      ready_.push(node);
  }

  void work() {
    while (!ready_.empty()) {
      Node* node = ready_.top();
      ready_.pop();
      const StreamGuard on(node->stream);
      std::vector<Tensor> grads = apply(*node, std::move(buffers_.at(node).grads));
      if (!retain_graph_) {
        node->consumed = true;
        node->release();
      }
      if (grads.size() != node->edges.size())
        throw Error(node->name() + " returned " + std::to_string(grads.size()) + " gradients for " +
                    std::to_string(node->edges.size()) + " inputs");
      for (std::size_t i = 0; i < grads.size(); ++i)
        if (node->edges[i]) deliver(node->edges[i], std::move(grads[i]));
    }
  }

  void join_streams() const {
    for (const Stream& stream : streams_) Stream::current(stream.device()).wait(stream);
  }

  Run& outermost() { return outer_ == nullptr ? *this : outer_->outermost(); }

  void run_callbacks() {
    for (std::size_t i = 0; i < callbacks.size(); ++i) {
      const std::function<void()> callback = std::move(callbacks[i]);
      callback();
    }
  }

  [[nodiscard]] int sole_pending(const Node* node) const {
    const auto buffer = buffers_.find(const_cast<Node*>(node));
    return buffer == buffers_.end() || buffer->second.touched ? -1 : buffer->second.waiting;
  }

  [[nodiscard]] bool retains_graph() const { return retain_graph_; }

  std::vector<std::function<void()>> callbacks;

 private:
  static std::vector<Tensor> apply(Node& node, std::vector<Tensor> grads) {
    const profile::Operation operation(profile::enabled() ? profile::lasting(node.name()) : "");
    return node.apply(std::move(grads));
  }

  void order_streams(const Node* node, const Tensor& grad) {
    if (!node->stream.defined()) return;
    if (std::ranges::find(streams_, node->stream) == streams_.end())
      streams_.push_back(node->stream);
    if (!grad.defined()) return;
    const Stream made = Stream::current(grad.device());
    if (made == node->stream) return;
    node->stream.wait(made);
    grad.record_stream(node->stream);
  }

  bool retain_graph_;
  Run* outer_ = nullptr;
  std::vector<Stream> streams_;  // the streams of the nodes that have run
  std::unordered_map<Node*, InputBuffer> buffers_;
  std::priority_queue<Node*, std::vector<Node*>, Later> ready_;
};

Tensor seed_for(const Tensor& root, const Tensor& gradient) {
  if (!gradient.defined()) {
    if (root.numel() != 1)
      throw UsageError("backward() without a gradient needs a tensor of one element, got " +
                       to_string(root.sizes()));
    return ones_like(root);
  }
  autograd::require_fits(root, gradient, "backward: gradient");
  return gradient.detach();
}

}  // namespace

namespace autograd {

bool retains_graph() { return current == nullptr || current->retains_graph(); }

int sole_pending(const Node* node) { return current != nullptr ? current->sole_pending(node) : -1; }

}  // namespace autograd

void backward(const std::vector<Tensor>& roots, const std::vector<Tensor>& gradients,
              bool retain_graph) {
  if (!gradients.empty() && gradients.size() != roots.size())
    throw UsageError("backward: " + std::to_string(roots.size()) + " roots but " +
                     std::to_string(gradients.size()) + " gradients");
  std::vector<Edge> edges;
  std::vector<Tensor> seeds;
  for (std::size_t i = 0; i < roots.size(); ++i) {
    require(roots[i].requires_grad(),
            "backward: the tensor does not require a gradient: no input of it does, or it was "
            "computed without recording");
    edges.push_back(autograd::gradient_edge(roots[i]));
    seeds.push_back(seed_for(roots[i], gradients.empty() ? Tensor() : gradients[i]));
  }
  const NoGradGuard no_grad;
  Run run(edges, retain_graph);
  for (std::size_t i = 0; i < edges.size(); ++i) run.deliver(edges[i], std::move(seeds[i]));
  run.work();
  run.join_streams();
  run.run_callbacks();
}

void queue_backward_callback(std::function<void()> callback) {
  if (current == nullptr)
    throw UsageError("queue_backward_callback may only be called during backward()");
  current->outermost().callbacks.push_back(std::move(callback));
}

}  // namespace ringsmith
