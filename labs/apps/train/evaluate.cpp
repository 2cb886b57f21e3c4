#include "labs/apps/train/evaluate.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <vector>

#include "labs/apps/common/agreement.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/base/tracer.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith::apps {

namespace {

constexpr const char* kStopped =
    "training has stopped, no model was written: try a smaller --lr, or look for bad values in the "
    "data";

struct Sums {
  double loss = 0, right = 0, samples = 0, targets = 0;

  void add(const Tensor& outputs, const Tensor& targets_of_batch) {
    const Tensor rows = view(outputs, {-1, outputs.sizes().back()});
    const Tensor labels = view(targets_of_batch, {-1});
    for (const float l : cross_entropy(rows, labels, Reduction::none).to_vector<float>()) loss += l;
    const auto best = max(rows, 1).second.to_vector<std::int64_t>();
    const auto target = labels.to_vector<std::int64_t>();
    for (std::size_t i = 0; i < best.size(); ++i) right += best[i] == target[i] ? 1 : 0;
    targets += static_cast<double>(target.size());
  }
};

}  // namespace

Evaluation evaluate(comm::ProcessGroup& group, Module& model, const Dataset& held_out,
                    const EvaluationPlan& plan) {
  require(held_out.size() > 0, "evaluate: there are no held-out samples");
  const NoGradGuard no_grad;
  const EvalGuard evaluating(model);
  const trace::Span span("evaluation", trace::Category::frame);
  const Device device = model.device();
  const std::int64_t samples = std::min(held_out.size(), plan.most);
  Sums mine;
  std::vector<std::int64_t> indices;
  const auto add = [&] {
    if (indices.empty()) return;
    const Batch batch = held_out.get(indices).to(device);
    mine.add(model(batch.inputs), batch.targets);
    mine.samples += static_cast<double>(indices.size());
    indices.clear();
  };
  for (std::int64_t i = group.rank(); i < samples; i += group.size()) {
    indices.push_back(i * held_out.size() / samples);
    if (static_cast<std::int64_t>(indices.size()) == plan.batch) add();
  }
  add();
  const auto sum = sum_over_ranks(group, {mine.loss, mine.right, mine.samples, mine.targets});
  if (!std::isfinite(sum[0])) {
    if (group.rank() != 0) throw QuietStop(ExitCode::internal);
    throw Error(fmt::format("the loss on the held-out data is {}; {}",
                            std::isnan(sum[0]) ? "NaN" : "infinite", kStopped));
  }
  return {sum[0] / sum[3], sum[1] / sum[3], static_cast<std::int64_t>(sum[2]),
          static_cast<std::int64_t>(sum[3])};
}

void require_finite(comm::ProcessGroup& group, const StateDict& state, const std::string& when) {
  together(group, [&] {
    for (const auto& [name, tensor] : state)
      if (!raw::all_finite(tensor))
        throw Error(fmt::format("'{}' holds NaN or an infinity {}; {}", name, when, kStopped));
  });
}

void require_updates(const comm::ProcessGroup& group, std::int64_t steps, std::int64_t updates) {
  constexpr std::int64_t kJudged = 20;  // steps; in a run's first steps the scale is still falling
  const std::int64_t skipped = steps - updates;
  if (skipped == 0 || (updates > 0 && (steps < kJudged || 2 * skipped <= steps))) return;
  if (group.rank() != 0) throw QuietStop(ExitCode::internal);
  throw Error(fmt::format(
      "{} of {} steps were skipped, because gradients were infinite or NaN; no model was "
      "written: try --amp bf16, or a smaller --lr",
      skipped, steps));
}

}  // namespace ringsmith::apps
