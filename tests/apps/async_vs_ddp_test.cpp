// Tests the parameter server with sums that are exact in any order, and async_vs_ddp's output.
#include <algorithm>
#include <numeric>
#include <optional>

#include "labs/apps/compare/parameter_server.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/nn/layers.hpp"
#include "tests/apps/programs.hpp"
#include "tests/comm/thread_ranks.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;
using namespace ringsmith::testing;

namespace {

std::unique_ptr<Optimizer> plain_sgd(std::vector<Tensor> parameters) {
  return std::make_unique<SGD>(std::move(parameters), SGDOptions{.lr = 1});
}

std::vector<float> all_values(const Module& model) {
  std::vector<float> out;
  for (const Tensor& p : model.parameters()) {
    const auto values = p.to_vector<float>();
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

}  // namespace

TEST_CASE("every accepted gradient is applied once, whatever the order", "[async]") {
  for (const int world : {1, 2, 3, 5}) {
    constexpr std::int64_t kBudget = 61;
    // This thread draws all models, because threads must not share the default generator.
    std::vector<std::unique_ptr<Linear>> models;
    for (int r = 0; r < world; ++r) {
      models.push_back(std::make_unique<Linear>(3, 2));
      for (const Tensor& p : models.back()->parameters()) p.fill_(1000.0 * r);
    }
    using Staleness = std::vector<std::int64_t>;
    const auto staleness = test::run_threads<Staleness>(world, [&](comm::ProcessGroup& group) {
      const int rank = group.rank();
      Linear& model = *models[static_cast<std::size_t>(rank)];
      const Tensor weight = model.parameters()[0], bias = model.parameters()[1];
      ParameterServer server(group, model, plain_sgd, kBudget);
      std::int64_t pushes = 0;
      do {  // rank r pushes r + 1 for the weight, and 1 for the bias in every other push
        weight.set_grad(full({2, 3}, rank + 1.0));
        if (pushes++ % 2 == 0) bias.set_grad(full({2}, 1.0));
      } while (server.push_and_pull());
      server.finish();
      return server.staleness();
    });
    double weight = 0, bias = 0;
    std::int64_t updates = 0, last = 0;
    for (std::size_t r = 0; r < staleness.size(); ++r) {
      const auto count = static_cast<std::int64_t>(staleness[r].size());
      updates += count;
      weight -= static_cast<double>(count) * static_cast<double>(r + 1);
      bias -= static_cast<double>((count + 1) / 2);
      // Between two pulls the version grows by the rank's own update plus the staleness, so the sum
      // over all pulls is the number of versions seen.
      last = std::max(last, std::accumulate(staleness[r].begin(), staleness[r].end(), count));
      CHECK(std::ranges::all_of(staleness[r], [](std::int64_t s) { return s >= 0; }));
    }
    CHECK(updates == kBudget);
    CHECK(last == kBudget);
    std::vector<float> expected(8, static_cast<float>(weight));
    expected[6] = expected[7] = static_cast<float>(bias);
    for (const auto& model : models) CHECK(all_values(*model) == expected);
  }
}

TEST_CASE("alone, a parameter server is the plain optimizer, bit for bit", "[async]") {
  const auto make = [](std::vector<Tensor> p) {
    return std::make_unique<AdamW>(std::move(p), AdamOptions{.lr = 0.01, .weight_decay = 0.1});
  };
  manual_seed(5);
  MLP plain({7, 9, 3});
  manual_seed(5);
  MLP served({7, 9, 3});
  const auto optimizer = make(plain.parameters());
  const auto staleness =
      test::run_threads<std::vector<std::int64_t>>(1, [&](comm::ProcessGroup& group) {
        ParameterServer server(group, served, make, 20);
        Generator random(3);
        for (bool more = true; more;) {
          const Tensor x = randn({4, 7}, random);
          const Tensor y = from_vector(std::vector<std::int64_t>{0, 2, 1, 2});
          optimizer->zero_grad();
          cross_entropy(plain.forward(x), y).backward();
          cross_entropy(served.forward(x), y).backward();
          more = server.push_and_pull();
          if (more) optimizer->step();
        }
        server.finish();
        return server.staleness();
      });
  CHECK(staleness[0] == std::vector<std::int64_t>(20, 0));
  CHECK(all_values(served) == all_values(plain));
}

TEST_CASE("a rank that never pushes is rank 0's error, and nobody hangs", "[async]") {
  std::vector<std::unique_ptr<Linear>> models;
  for (int r = 0; r < 2; ++r) models.push_back(std::make_unique<Linear>(3, 2));
  comm::GroupOptions impatient;
  impatient.timeout = std::chrono::milliseconds(500);
  const auto errors = test::run_threads<std::string>(
      2,
      [&](comm::ProcessGroup& group) -> std::string {
        ParameterServer server(group, *models[static_cast<std::size_t>(group.rank())], plain_sgd,
                               10);
        if (group.rank() == 1) return "";
        while (server.push_and_pull()) {
        }
        try {
          server.finish();
        } catch (const Error& e) {
          return e.what();
        }
        return "";
      },
      impatient);
  CHECK_THAT(errors[0], ContainsSubstring("recv"));
}

TEST_CASE("async_vs_ddp on 1 and 3 ranks", "[async]") {
  const std::vector<std::string> small = {"--steps",  "6", "--batch", "4",
                                          "--hidden", "8", "--draw",  "200"};
  const ProgramResult one = run_app(0, "async_vs_ddp", small);
  INFO(one.out << one.err);
  REQUIRE(one.exit_code == 0);
  std::istringstream lines(one.out);
  std::optional<std::pair<std::string, std::string>> losses;
  for (std::string line; std::getline(lines, line);)
    if (line.rfind("loss", 0) == 0) {
      std::istringstream words(line.substr(std::string("loss on unseen digits").size()));
      losses.emplace();
      words >> losses->first >> losses->second;
    }
  REQUIRE(losses);
  CHECK(losses->first == losses->second);  // with one rank, both train the same way

  const ProgramResult three = run_app(3, "async_vs_ddp", small);
  INFO(three.out << three.err);
  REQUIRE(three.exit_code == 0);
  CHECK_THAT(three.out, ContainsSubstring("digits; 3 ranks, batches of 4, 6 steps of DDP\n"));
  CHECK_THAT(three.out, ContainsSubstring("24 24 24"));
}

TEST_CASE("async_vs_ddp refuses what it cannot do in one line", "[async]") {
  const std::vector<std::vector<std::string>> all = {{"--slow-rank", "1"},
                                                     {"--slow-rank", "-2"},
                                                     {"--steps", "0"},
                                                     {"--batch", "0"},
                                                     {"--lr", "0"},
                                                     {"--momentum", "2"},
                                                     {"--algorithm", "direct"},
                                                     {"--draw", "3"},
                                                     {"--slow-ms", "-1"},
                                                     {"surplus"}};
  for (const auto& options : all) {
    const ProgramResult run = run_app(0, "async_vs_ddp", options);
    INFO(options.back() << ": " << run.err);
    CHECK(run.exit_code == 6);
    CHECK(std::ranges::count(run.err, '\n') == 1);
    CHECK(run.out.empty());
  }
}
