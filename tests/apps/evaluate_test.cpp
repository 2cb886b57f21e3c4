// Evaluation counts each sample once, on any number of ranks, and has no effect on training.
#include "labs/apps/train/evaluate.hpp"

#include <cmath>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/autograd/node.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/nn/layers.hpp"
#include "tests/apps/programs.hpp"
#include "tests/comm/thread_ranks.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;
using namespace ringsmith::testing;

namespace {

constexpr int kClasses = 4, kWidth = 3;

// Sample i has the label i % 4 and inputs computed from i. Counts how often each sample is fetched.
class Counted : public Dataset {
 public:
  explicit Counted(std::int64_t size) : fetched(static_cast<std::size_t>(size)) {}
  [[nodiscard]] std::int64_t size() const override { return std::ssize(fetched); }
  [[nodiscard]] Batch get(std::span<const std::int64_t> indices) const override {
    const std::lock_guard lock(mutex_);
    std::vector<float> inputs;
    std::vector<std::int64_t> targets;
    for (const std::int64_t i : indices) {
      check_index(i);
      ++fetched[static_cast<std::size_t>(i)];
      for (int c = 0; c < kWidth; ++c)
        inputs.push_back(static_cast<float>((i * 7 + c * 3) % 11 - 5) / 4);
      targets.push_back(i % kClasses);
    }
    const auto n = std::ssize(indices);
    Tensor labels = Tensor::empty({n}, {DType::i64});
    std::copy(targets.begin(), targets.end(), labels.data<std::int64_t>());
    return {from_vector(inputs, {n, kWidth}), labels};
  }
  mutable std::vector<int> fetched;

 private:
  mutable std::mutex mutex_;
};

// A model with layers whose state a training pass would change, and with a frozen layer.
class Noticing : public Module {
 public:
  Noticing() : first_(kWidth, 5), norm_(5), frozen_(5), drop_(0.5), last_(5, kClasses) {
    register_module("first", first_);
    register_module("norm", norm_);
    register_module("frozen", frozen_);
    register_module("drop", drop_);
    register_module("last", last_);
    frozen_.eval();
  }
  Tensor forward(const Tensor& x) override {
    return last_.forward(drop_.forward(frozen_.forward(norm_.forward(first_.forward(x)))));
  }
  [[nodiscard]] std::vector<bool> modes() const {
    return {training(), norm_.training(), frozen_.training(), drop_.training()};
  }

 private:
  Linear first_;
  BatchNorm2d norm_, frozen_;
  Dropout drop_;
  Linear last_;
};

std::unique_ptr<Linear> model() {
  manual_seed(5);
  return std::make_unique<Linear>(kWidth, kClasses);
}

// Computes the loss and the number of right answers one sample at a time, in double.
Evaluation by_hand(Module& model, const Dataset& data) {
  const NoGradGuard no_grad;
  Evaluation out;
  for (std::int64_t i = 0; i < data.size(); ++i) {
    const std::vector<std::int64_t> one{i};
    const Batch batch = data.get(one);
    const auto y = model.forward(batch.inputs).to_vector<float>();
    const auto label = static_cast<std::size_t>(i % kClasses);
    double sum = 0;
    for (const float v : y) sum += std::exp(static_cast<double>(v));
    out.loss += std::log(sum) - static_cast<double>(y[label]);
    out.accuracy += std::max_element(y.begin(), y.end()) - y.begin() == i % kClasses ? 1 : 0;
  }
  out.loss /= static_cast<double>(data.size());
  out.accuracy /= static_cast<double>(data.size());
  return out;
}

std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::vector<nlohmann::json> out;
  std::istringstream in(read_text(path));
  for (std::string line; std::getline(in, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

}  // namespace

TEST_CASE("each sample counts once, on 1 to 5 ranks, also where some have none, with the same bits",
          "[evaluate]") {
  for (const std::int64_t size : {1, 2, 3, 7, 30, 31}) {
    const auto reference = model();
    const Evaluation expected = by_hand(*reference, Counted(size));
    std::vector<double> losses;
    for (const int world : {1, 2, 3, 4, 5}) {
      const Counted data(size);
      std::vector<std::unique_ptr<Linear>> models;
      for (int r = 0; r < world; ++r) models.push_back(model());
      const auto results = test::run_threads<Evaluation>(world, [&](comm::ProcessGroup& group) {
        return evaluate(group, *models[static_cast<std::size_t>(group.rank())], data, {.batch = 4});
      });
      INFO("world " << world << ", size " << size);
      CHECK(data.fetched == std::vector<int>(static_cast<std::size_t>(size), 1));
      for (const Evaluation& e : results) {
        CHECK(e.samples == size);
        CHECK(e.targets == size);
        CHECK(e.accuracy == expected.accuracy);
        CHECK(std::abs(e.loss - expected.loss) <= 1e-6 * expected.loss);
        losses.push_back(e.loss);
      }
    }
    for (const double loss : losses) CHECK(loss == losses.front());
  }
}

TEST_CASE("at most so many samples are spread evenly; none at all is refused", "[evaluate]") {
  const Counted data(100), none(0);
  std::vector<std::unique_ptr<Linear>> models;
  for (int r = 0; r < 3; ++r) models.push_back(model());
  const auto results = test::run_threads<Evaluation>(3, [&](comm::ProcessGroup& group) {
    return evaluate(group, *models[static_cast<std::size_t>(group.rank())], data,
                    {.batch = 4, .most = 10});
  });
  CHECK(results[0].samples == 10);
  std::vector<int> expected(100);
  for (std::size_t i = 0; i < 100; i += 10) expected[i] = 1;
  CHECK(data.fetched == expected);
  CHECK_THROWS_WITH(
      test::run_threads<int>(2,
                             [&](comm::ProcessGroup& group) {
                               (void)evaluate(
                                   group, *models[static_cast<std::size_t>(group.rank())], none);
                               return 0;
                             }),
      ContainsSubstring("no held-out samples"));
}

TEST_CASE("evaluation leaves parameters, statistics, modes and random numbers as they were",
          "[evaluate]") {
  manual_seed(3);
  Noticing noticing;
  const auto state = [&] {
    std::vector<std::vector<float>> out;
    for (const auto& [name, t] : noticing.state_dict())
      out.push_back(t.to(DType::f32).to_vector<float>());
    return out;
  };
  const auto before = state();
  const auto modes = noticing.modes();
  REQUIRE(modes == std::vector<bool>{true, true, false, true});
  const std::string random = get_rng_state();
  const Counted data(20);
  const auto results = test::run_threads<Evaluation>(
      1, [&](comm::ProcessGroup& group) { return evaluate(group, noticing, data); });
  CHECK(std::isfinite(results[0].loss));
  CHECK(state() == before);
  CHECK(noticing.modes() == modes);
  CHECK(get_rng_state() == random);
  CHECK(grad_enabled());
}

TEST_CASE("--eval-every: the same model bit for bit as without, and its lines in metrics.jsonl",
          "[programs]") {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "ring " + std::to_string(i * i) + " of steps\n";
  write_text(folder / "text", text);
  for (const char* program : {"train_gpt", "train_mlp"})
    for (const int world : {1, 3}) {
      const bool gpt = program == std::string("train_gpt");
      const auto run = [&](const std::string& name, const std::vector<std::string>& more) {
        const std::string path = folder / (program + std::to_string(world) + name);
        auto options = (gpt ? tiny_gpt(folder / "text") : tiny_mlp()) + more +
                       std::vector<std::string>{"--run-dir", path, "--steps", "5"};
        if (gpt) options.insert(options.end(), {"--dropout", "0.3"});
        const auto r = run_app(world, program, options);
        INFO(r.err);
        REQUIRE(r.exit_code == 0);
        return path;
      };
      INFO(program << " on " << world);
      const std::string without = run("without", {}), with = run("with", {"--eval-every", "2"});
      CHECK(read_text(with + "/model.safetensors") == read_text(without + "/model.safetensors"));
      std::vector<std::pair<int, bool>> seen;  // step, evaluation
      for (const auto& line : lines_of(with + "/metrics.jsonl")) {
        const bool evaluation = line.contains("validation_loss");
        seen.emplace_back(line.at("step").get<int>(), evaluation);
        if (!evaluation) continue;
        CHECK(line.at("validation_loss") > 0.0);
        CHECK(line.at("validation_accuracy") >= 0.0);
        CHECK(line.at("validation_samples") == (gpt ? 49 : 21));
        CHECK_FALSE(line.contains("loss"));
      }
      const std::vector<std::pair<int, bool>> expected = {{1, false}, {2, false}, {2, true},
                                                          {3, false}, {4, false}, {4, true},
                                                          {5, false}, {5, true}};
      CHECK(seen == expected);
      for (const auto& line : lines_of(without + "/metrics.jsonl"))
        CHECK_FALSE(line.contains("validation_loss"));
    }
}
