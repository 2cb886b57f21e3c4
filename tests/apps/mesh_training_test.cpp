// train_gpt with a model that is split among ranks, compared with one process.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "runtime/checkpoint/safetensors.hpp"
#include "tests/apps/programs.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;

namespace {

using SplitOptions = std::vector<std::string>;

std::string text_to_split() {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "ring " + std::to_string(i * i) + " of steps\n";
  return text;
}

struct SplitRun {
  std::vector<double> losses;
  double validation = 0;
  StateDict model;
  std::string out;
};

// Trains a GPT of 4 layers and 4 heads.
SplitRun train_split(const TemporaryFolder& folder, const std::string& name, int world,
                     const SplitOptions& options) {
  const std::string run = folder / name;
  const auto r = run_app(world, "train_gpt",
                         SplitOptions{"--data",       folder / "text",
                                      "--layers",     "4",
                                      "--dim",        "16",
                                      "--heads",      "4",
                                      "--context",    "16",
                                      "--batch",      "2",
                                      "--steps",      "4",
                                      "--sample",     "8",
                                      "--progress",   "off",
                                      "--eval-every", "4",
                                      "--run-dir",    run} +
                             options);
  INFO(r.err << r.out);
  REQUIRE(r.exit_code == 0);
  SplitRun out;
  std::istringstream metrics(read_text(run + "/metrics.jsonl"));
  for (std::string line; std::getline(metrics, line);) {
    const auto entry = nlohmann::json::parse(line);
    if (entry.contains("loss")) out.losses.push_back(entry.at("loss"));
    if (entry.contains("validation_loss")) out.validation = entry.at("validation_loss");
  }
  REQUIRE(out.losses.size() == 4);
  out.model = load_safetensors(run + "/model.safetensors").tensors;
  out.out = r.out;
  return out;
}

// Compares only losses. Parameters may differ more, because Adam turns the rounding errors of
// gradients that are 0 (of the keys' biases) into steps of full size, which change no loss.
double largest_loss_difference(const SplitRun& a, const SplitRun& b) {
  double worst = std::abs(a.validation - b.validation);
  for (std::size_t i = 0; i < 4; ++i) {
    const double d = std::abs(a.losses[i] - b.losses[i]);
    if (!(d <= worst)) worst = std::isnan(d) ? HUGE_VAL : d;  // a NaN must not be lost
  }
  return worst;
}

std::map<std::string, std::pair<Shape, std::vector<float>>> values_in(const SplitRun& run) {
  std::map<std::string, std::pair<Shape, std::vector<float>>> out;
  for (const auto& [name, tensor] : run.model)
    out[name] = {tensor.sizes(), tensor.to_vector<float>()};
  return out;
}

std::string sample_in(const SplitRun& run) {
  const auto begin = run.out.find("---- a sample ----");
  REQUIRE(begin != std::string::npos);
  return run.out.substr(begin, run.out.find("\n---", begin + 10) - begin);
}

}  // namespace

TEST_CASE("train_gpt --pipeline has the bits of --accumulate in one process", "[programs][mesh]") {
  const TemporaryFolder folder;
  write_text(folder / "text", text_to_split());
  const SplitRun want = train_split(folder, "one", 1, {"--accumulate", "3"});
  for (const SplitOptions& options :
       {SplitOptions{"--pipeline", "2"}, {"--pipeline", "4", "--pipeline-schedule", "gpipe"}}) {
    INFO(options[1] << " stages");
    const SplitRun got = train_split(folder, options[1], std::stoi(options[1]),
                                     SplitOptions{"--microbatches", "3"} + options);
    CHECK(got.losses == want.losses);
    CHECK(largest_loss_difference(got, want) == 0);
    CHECK(values_in(got) == values_in(want));
    CHECK(sample_in(got) == sample_in(want));
  }
}

TEST_CASE("train_gpt --tensor-parallel, and a mesh, train as one process", "[programs][mesh]") {
  const TemporaryFolder folder;
  write_text(folder / "text", text_to_split());
  const SplitRun alone = train_split(folder, "one", 1, {});
  const SplitRun parts = train_split(folder, "parts", 2, {"--tensor-parallel", "2"});
  CHECK(largest_loss_difference(parts, alone) < 1e-5);
  REQUIRE(parts.model.size() == alone.model.size());
  for (const auto& [name, tensor] : alone.model) {
    INFO(name);
    REQUIRE(parts.model.count(name) == 1);
    CHECK(parts.model.at(name).sizes() == tensor.sizes());
  }
  CHECK(largest_loss_difference(
            train_split(folder, "tokens", 4, {"--tensor-parallel", "4", "--sequence-parallel"}),
            alone) < 1e-5);
  // Two replicas, each of two stages or two parts.
  const SplitRun replicas = train_split(folder, "two", 2, {"--accumulate", "2"});
  CHECK(largest_loss_difference(
            train_split(folder, "stages", 4, {"--pipeline", "2", "--microbatches", "2"}),
            replicas) == 0);
  CHECK(largest_loss_difference(
            train_split(folder, "both", 4, {"--tensor-parallel", "2", "--microbatches", "2"}),
            replicas) < 1e-5);
}

TEST_CASE("train_gpt refuses meshes that cannot be, in one line", "[programs][mesh]") {
  const TemporaryFolder folder;
  const std::string text = write_text(folder / "text", text_to_split());
  const auto refuse = [&](int world, const SplitOptions& options, const std::string& words) {
    const auto r = run_app(world, "train_gpt", tiny_gpt(text) + options);
    INFO(words << "\n" << r.err);
    CHECK(r.exit_code == 6);
    const auto lines = error_lines("train_gpt", r.err);
    REQUIRE(lines.size() == 1);
    CHECK_THAT(lines[0], ContainsSubstring(words));
  };
  refuse(3, {"--pipeline", "2"}, "3 ranks cannot be divided into models of 1 parts x 2 stages");
  refuse(2, {"--pipeline", "2"}, "2 stages need at least 2 layers, the model has 1");
  refuse(3, {"--tensor-parallel", "3"}, "2 heads cannot be split among 3 ranks");
  refuse(2, {"--tensor-parallel", "2", "--save-every", "1"}, "--save-every");
  refuse(2, {"--tensor-parallel", "2", "--accumulate", "2"}, "--microbatches takes its place");
  refuse(2, {"--tensor-parallel", "2", "--ddp", "plain"}, "--ddp plain");
  refuse(2, {"--tensor-parallel", "2", "--sequence-parallel", "--context", "15"}, "a multiple");
  refuse(2, {"--microbatches", "2"}, "use --accumulate");
  refuse(2, {"--sequence-parallel"}, "--tensor-parallel: give it, too");
  refuse(2, {"--pipeline", "2", "--pipeline-schedule", "zero"}, "--pipeline-schedule");
}
