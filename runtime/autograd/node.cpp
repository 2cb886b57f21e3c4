// Nodes, edges and grad mode: building the graph, recording into it, and destroying it.

#include "runtime/autograd/node.hpp"

#include <algorithm>
#include <atomic>
#include <unordered_set>
#include <utility>

#include "runtime/autograd/tensor_grad.hpp"

namespace ringsmith {

namespace {
thread_local bool grad_mode = true;
thread_local std::shared_ptr<SavedTensorKeeper> current_keeper;
thread_local std::vector<std::shared_ptr<Node>>* dying = nullptr;
std::atomic<std::uint64_t> next_sequence{1};
}  // namespace

bool grad_enabled() { return grad_mode; }
NoGradGuard::NoGradGuard() : previous_(grad_mode) { grad_mode = false; }
NoGradGuard::~NoGradGuard() { grad_mode = previous_; }
EnableGradGuard::EnableGradGuard() : previous_(grad_mode) { grad_mode = true; }
EnableGradGuard::~EnableGradGuard() { grad_mode = previous_; }

// A graph may be a chain of a hundred thousand nodes, each owned by the next. Destroying it
// recursively would overflow the stack, so the outermost destructor collects the nodes that inner
// destructors release.
Node::~Node() {
  std::vector<std::shared_ptr<Node>> pending;
  for (Edge& edge : edges)
    if (edge) (dying != nullptr ? *dying : pending).push_back(std::move(edge.node));
  if (pending.empty()) return;
  dying = &pending;
  while (!pending.empty()) {
    const std::shared_ptr<Node> last = std::move(pending.back());
    pending.pop_back();
  }
  dying = nullptr;
}

bool needs_graph(const std::vector<Tensor>& inputs) {
  return grad_mode && std::ranges::any_of(
                          inputs, [](const Tensor& t) { return t.defined() && t.requires_grad(); });
}

void connect(const std::shared_ptr<Node>& node, const std::vector<Tensor>& inputs, Tensor& output,
             int i) {
  if (node->sequence == 0) {
    node->sequence = next_sequence.fetch_add(1, std::memory_order_relaxed);
    node->edges.reserve(inputs.size());
    if (output.device().is_cuda()) node->stream = Stream::current(output.device());
    for (const Tensor& input : inputs) node->edges.push_back(autograd::gradient_edge(input));
  }
  node->outputs = std::max(node->outputs, i + 1);
  if (output.autograd_meta() != nullptr)
    throw Error(node->name() + ": connect() needs an output that is a fresh tensor object");
  auto meta = std::make_shared<autograd::GradMeta>();
  meta->grad_fn = node;
  meta->output = i;
  output.set_autograd_meta(std::move(meta));
}

std::vector<Tensor> reachable_leaves(const std::vector<Tensor>& roots) {
  std::vector<Tensor> leaves;
  std::unordered_set<Node*> seen;
  std::vector<Node*> stack;
  const auto visit = [&](const Edge& edge) {
    if (edge && seen.insert(edge.node.get()).second) stack.push_back(edge.node.get());
  };
  std::vector<Edge> alive;  // keeps alive the accumulators that gradient_edge() may create
  for (const Tensor& root : roots) {
    alive.push_back(autograd::gradient_edge(root));
    visit(alive.back());
  }
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    if (node->sequence == autograd::kAccumulateSequence)
      leaves.push_back(static_cast<AccumulateGrad*>(node)->leaf());
    for (const Edge& edge : node->edges) visit(edge);
  }
  return leaves;
}

KeeperScope::KeeperScope(std::shared_ptr<SavedTensorKeeper> keeper)
    : previous_(std::exchange(current_keeper, std::move(keeper))) {}
KeeperScope::~KeeperScope() { current_keeper = std::move(previous_); }

SavedTensor::SavedTensor(const Tensor& t) {
  if (!t.defined()) return;
  version_ = t.version();
  keeper_ = current_keeper;
  if (keeper_ == nullptr)
    tensor_ = t.detach();
  else
    number_ = keeper_->keep(t.detach());
}

const Tensor& SavedTensor::get(const std::string& function) const {
  if (released_)
    throw Error(function +
                ": its saved tensors were freed by an earlier backward: call backward once, or "
                "with retain_graph");
  const Tensor& t = keeper_ == nullptr ? tensor_ : keeper_->fetch(number_);
  if (t.defined() && t.version() != version_)
    throw Error(function + ": a tensor of shape " + to_string(t.sizes()) +
                " that backward needs was modified in place after forward (it was at version " +
                std::to_string(version_) + ", now at " + std::to_string(t.version()) + ")");
  return t;
}

void SavedTensor::release() {
  tensor_ = Tensor();
  if (keeper_ != nullptr && !released_) keeper_->release(number_);
  released_ = true;
}

namespace {

class RecordedNode : public Node {
 public:
  RecordedNode(const char* name, const std::vector<Tensor>& saved, BackwardFunction backward)
      : name_(name), saved_(saved.begin(), saved.end()), backward_(std::move(backward)) {}

  std::vector<Tensor> apply(std::vector<Tensor> grads) override {
    if (!grads[0].defined()) return std::vector<Tensor>(edges.size());
    return backward_(Saved(*this, saved_), std::move(grads[0]));
  }
  [[nodiscard]] std::string name() const override { return name_; }
  void release() override {
    for (SavedTensor& t : saved_) t.release();
  }

 private:
  const char* name_;
  std::vector<SavedTensor> saved_;
  BackwardFunction backward_;
};

}  // namespace

Tensor record(const char* name, const std::vector<Tensor>& inputs, Tensor output,
              const std::vector<Tensor>& saved, BackwardFunction backward) {
  if (needs_graph(inputs))
    connect(std::make_shared<RecordedNode>(name, saved, std::move(backward)), inputs, output);
  return output;
}

}  // namespace ringsmith
