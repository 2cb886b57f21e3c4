#include "runtime/parallel/missing_gradients.hpp"

#include <unordered_set>

#include "runtime/autograd/node.hpp"

namespace ringsmith {

MissingGradients::MissingGradients(GradientBuckets& buckets, bool find_unused, bool static_graph)
    : buckets_(buckets),
      find_unused_(find_unused),
      usage_(buckets.parameters().size(), buckets.group()),
      unreachable_(buckets.parameters().size()),
      kept_(buckets.parameters().size()) {
  if (static_graph) graph_.emplace(buckets.parameters().size());
}

void MissingGradients::after_forward(const std::vector<Tensor>& outputs, bool first) {
  if (!find_unused_) return;
  std::unordered_set<const AutogradMeta*> reached;
  for (const Tensor& leaf : reachable_leaves(outputs)) reached.insert(leaf.autograd_meta().get());
  // A parameter is unreachable only if no forward pass before the backward pass reaches it.
  const std::vector<Tensor>& parameters = buckets_.parameters();
  for (std::size_t p = 0; p < parameters.size(); ++p)
    unreachable_[p] =
        (first || unreachable_[p]) && reached.count(parameters[p].autograd_meta().get()) == 0;
}

void MissingGradients::pretend_all_used() {
  if (allowed()) return;
  for (int p = 0; p < static_cast<int>(kept_.size()); ++p) usage_.mark(p);
}

bool MissingGradients::used(int parameter) const {
  return usage_.used_on(buckets_.group()->rank(), parameter);
}

bool MissingGradients::known(int parameter) const {
  return unreachable_[static_cast<std::size_t>(parameter)] || (graph_ && graph_->unused(parameter));
}

void MissingGradients::second_gradient(int parameter) {
  if (!fault_.empty()) return;
  const auto p = static_cast<std::size_t>(parameter);
  fault_ = "parameter '" + buckets_.names()[p] +
           (unreachable_[p]
                ? "' got a gradient, but the outputs of forward() do not depend on it: return "
                  "every tensor that the loss is computed from"
                : "' got two gradients in one backward, as when a backward() inside of it "
                  "reaches the parameter again: set static_graph");
}

void MissingGradients::provide(int parameter) {
  const auto p = static_cast<std::size_t>(parameter);
  if (!buckets_.parameters()[p].grad().defined()) {
    buckets_.view(parameter).zero_();
    return;
  }
  buckets_.adopt(parameter);
  if (allowed() && !usage_.marked(parameter)) kept_[p] = buckets_.view(parameter).clone();
}

void MissingGradients::settle(std::uint64_t backward) {
  if (!usage_.used_everywhere()) {
    if (!allowed()) {
      const std::string unused = usage_.describe_unused(buckets_.names());
      usage_.clear();
      throw UsageError("backward pass " + std::to_string(backward) + ": " + unused +
                       "; use them in the loss, freeze them, or set find_unused_parameters");
    }
    for (int p = 0; p < static_cast<int>(kept_.size()); ++p) {
      if (usage_.marked(p)) continue;
      Tensor& kept = kept_[static_cast<std::size_t>(p)];
      if (usage_.used_anywhere(p)) {
        buckets_.parameters()[static_cast<std::size_t>(p)].set_grad(buckets_.view(p));
      } else if (kept.defined()) {
        buckets_.view(p).copy_(kept);
      }
      kept = {};
    }
  }
  usage_.clear();
}

}  // namespace ringsmith
