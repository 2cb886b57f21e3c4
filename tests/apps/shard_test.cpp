// Tests train_gpt --shard: it trains like DDP, and refuses options that it does not support.
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/checkpoint/safetensors.hpp"
#include "tests/apps/programs.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;

namespace {

struct ShardedRun {
  std::vector<double> losses;
  StateDict model;
  std::string out;
};

ShardedRun run_sharded(int ranks, const std::string& folder, const std::string& text,
                       const std::vector<std::string>& options) {
  const auto r = run_app(ranks, "train_gpt",
                         tiny_gpt(text) + std::vector<std::string>{"--run-dir", folder} + options);
  INFO(r.err << r.out);
  REQUIRE(r.exit_code == 0);
  ShardedRun out;
  std::istringstream in(read_text(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(in, line);) {
    const auto m = nlohmann::json::parse(line);
    if (m.contains("loss")) out.losses.push_back(m.at("loss").get<double>());
  }
  out.model = load_safetensors(folder + "/model.safetensors").tensors;
  out.out = r.out;
  return out;
}

double largest_difference(const StateDict& a, const StateDict& b) {
  double worst = 0;
  REQUIRE(a.size() == b.size());
  for (const auto& [name, t] : a) {
    const auto x = t.to_vector<float>(), y = b.at(name).to_vector<float>();
    REQUIRE(x.size() == y.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      if (const double d = std::abs(double{x[i]} - y[i]); !(d <= worst)) worst = d;
  }
  return worst;
}

}  // namespace

TEST_CASE("train_gpt --shard trains as DDP does, evaluates, writes the whole model", "[programs]") {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += "ring " + std::to_string(i * i) + " of steps\n";
  const std::string text = write_text(folder / "text", lines);
  // Three windows of evaluation are a different number of batches on each of 2 ranks.
  const std::vector<std::string> common{
      "--layers", "2", "--eval-every", "2", "--validation-windows", "17"};
  for (const int ranks : {2, 3}) {
    const auto run = [&](const std::string& name, const std::vector<std::string>& options) {
      return run_sharded(ranks, folder / (name + std::to_string(ranks)), text, common + options);
    };
    const ShardedRun ddp = run("ddp", {});
    for (const std::string kind : {"gradients", "parameters"}) {
      INFO(kind << " on " << ranks << " ranks");
      const ShardedRun sharded = run(kind, {"--shard", kind});
      REQUIRE(sharded.losses.size() == ddp.losses.size());
      for (std::size_t i = 0; i < ddp.losses.size(); ++i)
        CHECK(std::abs(sharded.losses[i] - ddp.losses[i]) < 1e-4);
      CHECK(largest_difference(sharded.model, ddp.model) < 1e-3);
      CHECK(sharded.out.find("---- a sample ----") != std::string::npos);
      CHECK(sharded.out.find("each of " + std::to_string(ranks) + " rank(s) keeps") !=
            std::string::npos);
    }
  }
  const auto extra = [&](const std::string& name, const std::vector<std::string>& options) {
    return run_sharded(2, folder / name, text, common + options);
  };
  const std::vector<std::string> more{"--accumulate", "2",   "--activation-checkpointing",
                                      "--dropout",    "0.1", "--tie-head"};
  CHECK(largest_difference(
            extra("more-ddp", more).model,
            extra("more", more + std::vector<std::string>{"--shard", "parameters"}).model) < 1e-3);
  for (const std::string amp : {"bf16", "f16"}) {
    const ShardedRun half = extra(amp, {"--shard", "parameters", "--amp", amp});
    for (const auto& [name, t] : half.model) CHECK(t.dtype() == DType::f32);
    CHECK(half.losses.back() < half.losses.front());
  }
}

TEST_CASE("train_gpt refuses what --shard cannot be combined with, in one line", "[programs]") {
  const TemporaryFolder folder;
  const std::string text = write_text(folder / "text", std::string(4000, 'x'));
  const std::vector<std::pair<std::vector<std::string>, std::string>> refused = {
      {{"--per-step"}, "--per-step"},
      {{"--save-every", "2"}, "--save-every or --resume"},
      {{"--resume", "auto"}, "--save-every or --resume"},
      {{"--check-drift", "2"}, "--check-drift"},
      {{"--ddp", "plain"}, "options of DistributedDataParallel"},
      {{"--comm-hook", "fp16"}, "options of DistributedDataParallel"},
      {{"--bucket-cap-mb", "3"}, "options of DistributedDataParallel"}};
  for (const auto& [options, named] : refused)
    require_refusal(
        "train_gpt",
        run_app(0, "train_gpt",
                tiny_gpt(text) +
                    std::vector<std::string>{"--shard", "parameters", "--run-dir", folder / "run"} +
                    options),
        {"--shard parameters cannot be combined with " + named});
  require_refusal(
      "train_gpt",
      run_app(0, "train_gpt", tiny_gpt(text) + std::vector<std::string>{"--shard", "x"}),
      {"--shard"});
}
