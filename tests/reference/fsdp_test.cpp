// Ranks as threads use FSDP to repeat the recorded runs of PyTorch's DistributedDataParallel
// (torch_ddp_features.py).
#include "runtime/parallel/beyond/fsdp.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/nn/layers.hpp"
#include "tests/reference/compare.hpp"
#include "tests/reference/data.hpp"
#include "tests/reference/thread_ranks.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/kernel_mode.hpp"

using namespace ringsmith;
using namespace ringsmith::reference;

namespace {

using nlohmann::json;

class TwoLayers : public Module {
 public:
  explicit TwoLayers(const json& run)
      : first(run.at("in"), run.at("hidden")), head(run.at("hidden"), run.at("out")) {
    register_module("first", first);
    register_module("head", head);
  }
  Tensor forward(const Tensor& x) override { return head(relu(first(x))); }
  Linear first, head;
};

std::unique_ptr<Optimizer> optimizer_of(const json& o, const std::vector<Tensor>& parameters) {
  if (o.at("name") == "sgd")
    return std::make_unique<SGD>(parameters,
                                 SGDOptions{.lr = o.at("lr"), .momentum = o.at("momentum")});
  return std::make_unique<AdamW>(
      parameters, AdamOptions{.lr = o.at("lr"), .weight_decay = o.at("weight_decay")});
}

Tensor rows_of(const Tensor& all, const std::vector<std::int64_t>& rows) {
  const Tensor out = Tensor::empty({std::ssize(rows), all.size(1)});
  for (std::int64_t i = 0; i < std::ssize(rows); ++i)
    out.slice(0, i, i + 1)
        .copy_(
            all.slice(0, rows[static_cast<std::size_t>(i)], rows[static_cast<std::size_t>(i)] + 1));
  return out;
}

// Returns the first difference from the run's losses or parameters, or "".
std::string replay(const json& run, const std::shared_ptr<comm::ProcessGroup>& group,
                   bool reshard) {
  const auto rank = static_cast<std::size_t>(group->rank());
  TwoLayers model(run);
  const std::vector<Tensor> parameters = model.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    parameters[i].copy_(tensor_f32(run.at("init").at(rank).at(i), parameters[i].sizes()));
  FullyShardedDataParallel fsdp(model, {&model.first}, group, {.reshard_after_forward = reshard});
  const auto optimizer = optimizer_of(run.at("optimizer"), fsdp.parameters());
  const Tensor x = tensor_f32(run.at("x"), {run.at("rows"), run.at("in")});
  const Tensor y = tensor_f32(run.at("y"), {run.at("rows"), run.at("out")});
  const auto complain = [&](const Tensor& got, const Tensor& want) {
    return difference(got, want, 2e-5 * std::max(largest_magnitude(want), 1e-3));
  };
  int number = 0;
  for (const json& step : run.at("steps")) {
    const auto rows = step.at("micro").at(rank).at(0).get<std::vector<std::int64_t>>();
    optimizer->zero_grad();
    const Tensor loss = mse_loss(fsdp.forward(rows_of(x, rows)), rows_of(y, rows));
    loss.backward();
    optimizer->step();
    std::string why = complain(loss.detach(), scalar(step.at("loss").at(rank).at(0)));
    const StateDict state = fsdp.state_dict();
    std::size_t i = 0;
    for (const auto& [name, t] : model.named_parameters())
      if (why.empty())
        why = complain(state.at(name), tensor_f32(step.at("params").at(i++), t.sizes()));
    if (!why.empty()) return fmt::format("rank {}, step {}: {}", rank, number, why);
    ++number;
  }
  return {};
}

}  // namespace

TEST_CASE("FSDP trains as PyTorch does, data-parallel on 1 to 5 ranks, up to rounding") {
  if (!has_part("features")) return;
  const test::KernelMode oracle(kernels::Mode::oracle);
  int runs = 0;
  for (const std::string& name : list("features")) {
    if (!name.starts_with("hook_none_")) continue;
    const json run = load("features/" + name + ".json");
    for (const bool reshard : {true, false}) {
      INFO(name << (reshard ? ", ZeRO-3" : ", ZeRO-2"));
      for (const std::string& complaint :
           complaints_of(run.at("world"), [&](auto group) { return replay(run, group, reshard); }))
        CHECK(complaint == "");
      ++runs;
    }
  }
  if (is_shipped_set()) CHECK(runs == 20);
}
