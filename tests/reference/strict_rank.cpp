#include "tests/reference/strict_rank.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "runtime/autograd/functions.hpp"
#include "runtime/data/sampler.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/ddp.hpp"
#include "tests/reference/compare.hpp"
#include "tests/reference/data.hpp"

namespace ringsmith::reference {

namespace {

// Returns one rank's batches over all epochs. The last batch of an epoch may be smaller.
std::vector<std::vector<std::int64_t>> batches(const StrictRun& run, int rank) {
  DistributedSampler sampler(run.samples, {.replicas = run.world,
                                           .rank = rank,
                                           .shuffle = true,
                                           .seed = static_cast<std::uint64_t>(run.sampler_seed)});
  std::vector<std::vector<std::int64_t>> all;
  for (std::int64_t epoch = 0; epoch < run.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    const std::vector<std::int64_t> order = sampler.indices();
    for (auto at = order.begin(); at != order.end();) {
      const auto end = at + std::min<std::ptrdiff_t>(run.batch, order.end() - at);
      all.emplace_back(at, end);
      at = end;
    }
  }
  return all;
}

}  // namespace

std::string train_and_compare(const StrictRun& run,
                              const std::shared_ptr<comm::ProcessGroup>& group) {
  const auto rank = static_cast<std::size_t>(group->rank());
  require(group->size() == run.world, "this trajectory is for another number of ranks");
  std::string complaint;
  const auto note = [&](const std::string& what, const std::string& why) {
    if (complaint.empty() && !why.empty())
      complaint = fmt::format("rank {}, {}: {}", rank, what, why);
  };

  const Device device = group->device();
  const auto compare = [&](const Tensor& got, const Tensor& want) {
    return device.is_cpu() ? bit_difference(got, want) : difference(got, want, tolerance(want, 0));
  };

  std::vector<Tensor> p;  // w1, b1, w2, b2; each rank starts with its own values
  for (const Tensor& t : run.init.at(rank)) p.push_back(t.clone().to(device).requires_grad_());
  const NamedTensors named{
      {"0.weight", p[0]}, {"0.bias", p[1]}, {"2.weight", p[2]}, {"2.bias", p[3]}};
  DdpOptions options;
  options.algorithm = comm::Algorithm::gloo_ring;
  DistributedDataParallel ddp(named, {}, group, options);
  for (std::size_t i = 0; i < p.size(); ++i)
    note("parameters of rank 0 after wrapping", compare(p[i], run.init[0][i]));

  SGD optimizer(p, SGDOptions{.lr = run.lr, .momentum = run.momentum});
  const auto mine = batches(run, group->rank());
  require(mine.size() == run.steps.size(),
          fmt::format("{} batches for {} steps", mine.size(), run.steps.size()));
  for (std::size_t s = 0; s < run.steps.size(); ++s) {
    const StrictStep& step = run.steps[s];
    const std::string at = fmt::format("step {}", s);
    note(at, mine[s] == step.indices[rank] ? "" : "another batch");
    optimizer.zero_grad();
    const Tensor x = rows(run.x, mine[s]).to(device);
    const Tensor out = ddp.forward([&] { return linear(relu(linear(x, p[0], p[1])), p[2], p[3]); });
    const Tensor loss = mse_loss(out, rows(run.y, mine[s]).to(device));
    loss.backward();
    optimizer.step();
    note(at + ", loss", compare(loss, tensor_f32({step.loss[rank]}, {})));
    for (std::size_t i = 0; i < p.size(); ++i)
      note(fmt::format("after {}, parameter {}", at, named[i].first),
           compare(p[i], step.params[i]));
  }
  return complaint;
}

}  // namespace ringsmith::reference
