#include "runtime/parallel/beyond/post_local_sgd.hpp"

#include <algorithm>
#include <string>

#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith {

CommHook post_local_sgd_hook(std::shared_ptr<comm::ProcessGroup> group, std::int64_t start,
                             std::shared_ptr<comm::ProcessGroup> subgroup) {
  require(start >= 0,
          "post_local_sgd_hook: start must not be negative, got " + std::to_string(start));
  const CommHook together = allreduce_hook(std::move(group));
  const CommHook apart = subgroup ? allreduce_hook(std::move(subgroup)) : noop_hook();
  const auto passes = std::make_shared<std::int64_t>(0);
  return {"post_local_sgd",
          [=](const GradBucket& bucket) {
            const bool warm = *passes >= start;
            if (bucket.is_last) ++*passes;
            return (warm ? apart : together).call(bucket);
          },
          [=] { --*passes; }};
}

PeriodicModelAverager::PeriodicModelAverager(std::shared_ptr<comm::ProcessGroup> group,
                                             std::int64_t period, std::int64_t warmup_steps)
    : group_(std::move(group)), period_(period), warmup_steps_(warmup_steps) {
  require(period >= 1,
          "PeriodicModelAverager: period must be at least 1, got " + std::to_string(period));
  require(warmup_steps >= 0, "PeriodicModelAverager: warmup_steps must not be negative, got " +
                                 std::to_string(warmup_steps));
}

void PeriodicModelAverager::average_parameters(const std::vector<Tensor>& parameters) {
  if (std::ranges::any_of(parameters, step_was_skipped)) return;
  const std::int64_t since = step_++ - warmup_steps_;
  if (since < 0 || since % period_ != 0 || parameters.empty()) return;
  const NoGradGuard no_grad;
  std::vector<Tensor> flat;
  for (const Tensor& p : parameters) {
    require(p.options() == parameters[0].options(),
            "PeriodicModelAverager: parameters of several dtypes or devices; use one for each");
    flat.push_back(reshape(p.detach(), {-1}));
  }
  const Tensor all = cat(flat, 0);
  raw::scalar_into(raw::Scalar::div, all, group_->size(), "PeriodicModelAverager");
  const Tensor mean = all_reduce(group_, all, comm::ReduceOp::sum).wait();
  std::int64_t begin = 0;
  for (const Tensor& p : parameters) {
    p.detach().copy_(mean.slice(0, begin, begin + p.numel()).view(p.sizes()));
    begin += p.numel();
  }
}

}  // namespace ringsmith
