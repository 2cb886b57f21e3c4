// Ranks as threads repeat what PyTorch 2.6 trained with its FSDP and with its tensor parallelism, a
// GPT of two blocks (torch_sharded.py). Sums have other orders there: equal up to rounding.
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/beyond/fsdp.hpp"
#include "runtime/parallel/beyond/gpt_stage.hpp"
#include "runtime/parallel/beyond/tensor_parallel.hpp"
#include "tests/reference/compare.hpp"
#include "tests/reference/data.hpp"
#include "tests/reference/thread_ranks.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::reference;

namespace {

using nlohmann::json;

// Of the largest element of a tensor. Measured: at most 9e-7.
constexpr double kRelative = 1e-5;

GPTOptions options_of(const json& run) {
  const json& o = run.at("options");
  return {.vocabulary = o.at("vocabulary"),
          .context = o.at("context"),
          .layers = o.at("layers"),
          .dim = o.at("dim"),
          .heads = o.at("heads")};
}

std::unique_ptr<GPT> model_of(const json& run) {
  auto model = std::make_unique<GPT>(options_of(run));
  for (const auto& [name, p] : model->named_parameters())
    p.copy_(tensor_f32(run.at("init").at(name), p.sizes()));
  return model;
}

std::unique_ptr<Optimizer> optimizer_of(const json& o, const std::vector<Tensor>& parameters) {
  if (o.at("name") == "sgd")
    return std::make_unique<SGD>(parameters,
                                 SGDOptions{.lr = o.at("lr"), .momentum = o.at("momentum")});
  return std::make_unique<AdamW>(
      parameters,
      AdamOptions{.lr = o.at("lr"), .eps = o.at("eps"), .weight_decay = o.at("weight_decay")});
}

Tensor tokens_of(const json& flat, const json& run) {
  return from_vector(flat.get<std::vector<std::int64_t>>(),
                     {run.at("rows"), run.at("options").at("context")});
}

// The first difference, and the largest one relative to its tensor.
struct Distance {
  std::string why;
  double largest = 0;

  void add(const std::string& what, const Tensor& got, const json& want) {
    const Tensor expected = tensor_f32(want.get<std::vector<float>>(), got.sizes());
    const double scale = std::max(largest_magnitude(expected), 1e-3);
    largest = std::max(largest, largest_magnitude(got - expected) / scale);
    const std::string line = difference(got, expected, kRelative * scale);
    if (why.empty() && !line.empty()) why = what + ": " + line;
  }
  void add_number(const std::string& what, double got, const json& want) {
    add(what, from_vector<float>({static_cast<float>(got)}, {1}), json::array({want}));
  }
  void add_all(const std::string& what, const StateDict& got, const json& want) {
    if (got.size() != want.size())
      why = fmt::format("{}: {} tensors, expected {}", what, got.size(), want.size());
    for (const auto& [name, t] : got) add(what + " of " + name, t.detach(), want.at(name));
  }
};

// Returns the factor by which clipping multiplies gradients.
double clipped(const json& run) {
  return std::min(
      1.0, run.at("clip").get<double>() / (run.at("steps").at(0).at("norm").get<double>() + 1e-6));
}

// The first step's gradients from the optimizer's state after it: a momentum of 0 + 1 g, or 0.1 g.
StateDict first_gradients(const FullyShardedDataParallel& fsdp, const Optimizer& optimizer,
                          const GPT& model, const json& run) {
  const bool sgd = run.at("optimizer").at("name") == "sgd";
  const StateDict state = fsdp.state_dict(optimizer);
  StateDict out;
  int number = 0;
  for (const auto& [name, p] : model.named_parameters()) {
    const Tensor& momentum =
        state.at(fmt::format("state.{}.{}", number++, sgd ? "momentum_buffer" : "exp_avg"));
    out[name] = mul(momentum, (sgd ? 1 : 10) / clipped(run));
  }
  return out;
}

Distance with_fsdp(const json& run, const std::shared_ptr<comm::ProcessGroup>& group,
                   bool reshard) {
  const auto rank = static_cast<std::size_t>(group->rank());
  const auto model = model_of(run);
  std::vector<Module*> units;
  for (const auto& block : model->blocks) units.push_back(block.get());
  FullyShardedDataParallel fsdp(*model, units, group, {.reshard_after_forward = reshard});
  const auto optimizer = optimizer_of(run.at("optimizer"), fsdp.parameters());
  Distance out;
  std::size_t number = 0;
  for (const json& step : run.at("steps")) {
    const std::string here = fmt::format("step {}: ", number);
    optimizer->zero_grad();
    const Tensor logits = fsdp.forward(tokens_of(run.at("inputs").at(number).at(rank), run));
    const Tensor loss =
        cross_entropy(view(logits, {-1, logits.size(-1)}),
                      view(tokens_of(run.at("targets").at(number).at(rank), run), {-1}));
    loss.backward();
    out.add_number(here + "loss", loss.item<float>(), step.at("loss").at(rank));
    out.add_number(here + "norm", fsdp.clip_grad_norm(run.at("clip")), step.at("norm"));
    optimizer->step();
    if (number++ == 0)
      out.add_all("gradient", first_gradients(fsdp, *optimizer, *model, run), run.at("gradients"));
  }
  out.add_all("final value", fsdp.state_dict(), run.at("params"));
  return out;
}

StateDict whole_gradients(const GptStage& stage, comm::ProcessGroup& group) {
  StateDict out;
  const std::string blocks = "blocks.0.";
  for (const auto& [name, p] : stage.named_parameters())
    out[name] = whole_of(
        group, p.grad(),
        name.starts_with("blocks.") ? split_of(name.substr(blocks.size())) : TensorSplit::none);
  return out;
}

Distance with_tensor_parallel(const json& run, const std::shared_ptr<comm::ProcessGroup>& group) {
  GptStage stage(model_of(run), make_mesh(*group, {.tensor = group->size()}),
                 run.at("kind") == "sequence");
  const auto optimizer = optimizer_of(run.at("optimizer"), stage.parameters());
  Distance out;
  std::size_t number = 0;
  for (const json& step : run.at("steps")) {
    const std::string here = fmt::format("step {}: ", number);
    optimizer->zero_grad();
    const Tensor logits = stage(tokens_of(run.at("inputs").at(number).at(0), run));
    const Tensor loss =
        cross_entropy(view(logits, {-1, logits.size(-1)}),
                      view(tokens_of(run.at("targets").at(number).at(0), run), {-1}));
    loss.backward();
    stage.sum_sequence_gradients();
    if (number++ == 0) out.add_all("gradient", whole_gradients(stage, *group), run.at("gradients"));
    out.add_number(here + "loss", loss.item<float>(),
                   step.at("loss").at(static_cast<std::size_t>(group->rank())));
    out.add_number(here + "norm", stage.clip_grad_norm(run.at("clip")), step.at("norm"));
    optimizer->step();
  }
  const StateDict state = stage.whole_state();  // empty but on rank 0
  if (group->rank() == 0) out.add_all("final value", state, run.at("params"));
  return out;
}

// Replays all runs whose name begins so, and returns their number.
int check_runs(
    const std::string& prefix,
    const std::function<Distance(const json&, std::shared_ptr<comm::ProcessGroup>)>& replay) {
  int runs = 0;
  double largest = 0;
  for (const std::string& name : list("sharded")) {
    if (!name.starts_with(prefix)) continue;
    INFO(name);
    const json run = load("sharded/" + name + ".json");
    std::vector<double> distances(run.at("world").get<std::size_t>());
    for (const std::string& complaint : complaints_of(run.at("world"), [&](const auto& group) {
           const Distance d = replay(run, group);
           distances[static_cast<std::size_t>(group->rank())] = d.largest;
           return d.why;
         }))
      CHECK(complaint == "");
    largest = std::max(largest, *std::ranges::max_element(distances));
    ++runs;
  }
  fmt::print("{} {} runs: at most {:.2g} of a tensor's largest element from PyTorch's\n", runs,
             prefix, largest);
  return runs;
}

}  // namespace

TEST_CASE("FSDP trains a GPT as PyTorch's FSDP does, on 2, 3 and 5 ranks", "[fsdp]") {
  if (!has_part("sharded")) return;
  for (const bool reshard : {true, false}) {
    INFO((reshard ? "ZeRO-3" : "ZeRO-2"));
    const int runs = check_runs("fsdp_", [&](const json& run, const auto& group) {
      return with_fsdp(run, group, reshard);
    });
    if (is_shipped_set()) CHECK(runs == 6);
  }
}

TEST_CASE("tensor parallelism trains a GPT as PyTorch's does, on 2, 3 and 4 ranks",
          "[tensor_parallel]") {
  if (!has_part("sharded")) return;
  for (const char* kind : {"tensor_", "sequence_"}) {
    const int runs = check_runs(kind, with_tensor_parallel);
    if (is_shipped_set()) CHECK(runs == 3);
  }
}
