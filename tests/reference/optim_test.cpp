// Compares every parameter after each of twenty steps of every optimizer with PyTorch.
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/optim/optimizer.hpp"
#include "tests/reference/compare.hpp"
#include "tests/reference/data.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/device.hpp"
#include "tests/support/kernel_mode.hpp"

using namespace ringsmith;
using namespace ringsmith::reference;

namespace {

// Absent attributes have PyTorch's defaults. Unknown attributes are refused.
std::unique_ptr<Optimizer> make(const std::string& kind, const nlohmann::json& attrs,
                                const std::vector<Tensor>& params) {
  std::set<std::string> known{"lr", "weight_decay", "clip_grad_norm", "norms"};
  known.merge(kind == "SGD" ? std::set<std::string>{"momentum", "dampening", "nesterov"}
                            : std::set<std::string>{"betas", "eps", "amsgrad"});
  for (const auto& [name, value] : attrs.items())
    require(known.count(name) == 1, kind + ": unknown attribute '" + name + "'");
  if (kind == "SGD")
    return std::make_unique<SGD>(
        params, SGDOptions{attrs.at("lr").get<double>(), attrs.value("momentum", 0.0),
                           attrs.value("dampening", 0.0), attrs.value("weight_decay", 0.0),
                           attrs.value("nesterov", false)});
  require(kind == "Adam" || kind == "AdamW", "unknown optimizer '" + kind + "'");
  const auto betas = attrs.value("betas", std::vector<double>{0.9, 0.999});
  const AdamOptions options{attrs.at("lr").get<double>(),
                            betas.at(0),
                            betas.at(1),
                            attrs.value("eps", 1e-8),
                            attrs.value("weight_decay", kind == "AdamW" ? 0.01 : 0.0),
                            attrs.value("amsgrad", false)};
  if (kind == "Adam") return std::make_unique<Adam>(params, options);
  return std::make_unique<AdamW>(params, options);
}

// Replays one run. Returns the first difference, or "".
std::string replay(const nlohmann::json& doc) {
  std::vector<Tensor> params;
  for (const auto& p : doc.at("params"))
    params.push_back(tensor(p).to(test::device()).requires_grad_());
  const nlohmann::json& attrs = doc.at("attrs");
  const auto optimizer = make(doc.at("optimizer").get<std::string>(), attrs, params);
  if (doc.at("grads").empty() || doc.at("grads").size() != doc.at("trajectory").size())
    return "no steps, or not as many gradients as results";
  for (std::size_t step = 0; step < doc.at("grads").size(); ++step) {
    for (std::size_t i = 0; i < params.size(); ++i)
      params[i].set_grad(tensor(doc.at("grads")[step].at(i)).to(test::device()));
    if (attrs.contains("clip_grad_norm")) {
      const double norm =
          clip_grad_norm_(params, attrs.at("clip_grad_norm").get<double>()).item<float>();
      const auto want = attrs.at("norms").at(step).get<double>();
      if (!(std::abs(norm - want) <= 1e-6 * want))
        return fmt::format("step {}: gradient norm {:.9g}, expected {:.9g}", step, norm, want);
    }
    optimizer->step();
    for (std::size_t i = 0; i < params.size(); ++i) {
      const Tensor want = tensor(doc.at("trajectory")[step].at(i));
      const std::string why = difference(params[i], want, tolerance(want, 0));
      if (!why.empty()) return fmt::format("step {}, parameter {}: {}", step, i, why);
    }
  }
  return {};
}

}  // namespace

TEST_CASE("optimizers follow PyTorch's trajectories, with the fast kernels and the oracles",
          "[on_device]") {
  if (!has_part("optim")) return;
  const auto names = load("index.json").at("optim").get<std::vector<std::string>>();
  const std::vector<std::string> files = list("optim");
  CHECK(std::set<std::string>(names.begin(), names.end()) ==
        std::set<std::string>(files.begin(), files.end()));
  if (is_shipped_set()) CHECK(names.size() == 12);
  for (const kernels::Mode mode : {kernels::Mode::fast, kernels::Mode::oracle})
    for (const std::string& name : names) {
      INFO("run " << name << ", kernels " << (mode == kernels::Mode::fast ? "fast" : "oracle"));
      const test::KernelMode scope(mode);
      CHECK(replay(load("optim/" + name + ".json")) == "");
    }
  fmt::print("reference: {} optimizer runs\n", names.size());
  std::fflush(stdout);
}
