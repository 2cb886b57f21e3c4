// async_vs_ddp: the same training run with DDP and with a parameter server, on the same ranks.
//
//   DDP                every update is the mean of all ranks' gradients; all wait for the slowest
//   parameter server   every gradient is an update; no rank waits for another, gradients are stale
//
// Both process the same number of samples. One rank can be slowed down.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <thread>
#include <utility>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"
#include "labs/apps/compare/metered_group.hpp"
#include "labs/apps/compare/parameter_server.hpp"
#include "labs/apps/train/data.hpp"
#include "labs/apps/train/options.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/base/table.hpp"
#include "runtime/data/images.hpp"
#include "runtime/nn/layers.hpp"

namespace ringsmith::apps {
namespace {

constexpr int kClasses = 10;

struct Options {
  MachineOptions machine;
  std::int64_t steps = 200, batch = 32, hidden = 256, draw = 10'000;
  double lr = 0.05, momentum = 0;
  int slow_rank = -1;
  double slow_ms = 20;
  std::uint64_t seed = 0;
};

struct Result {
  double seconds = 0;
  double updates = 0;
  std::vector<double> samples;  // [rank]
  double root_bytes = 0;        // sent and received by rank 0
  std::vector<double> staleness;
  double busy = 0;  // seconds that the server spent on updates
  double loss = 0, accuracy = 0;
};

class Experiment {
 public:
  Experiment(const std::shared_ptr<comm::ProcessGroup>& group, const Options& o)
      : group_(group),
        options_(o),
        device_(device_of_rank(o.machine.device)),
        train_(draw_digits(o.draw, 1), kClasses),
        unseen_(draw_digits(o.draw / 5 + 1, 2), kClasses) {}

  [[nodiscard]] Result with_ddp() {
    const auto model = make_model();
    const auto metered = std::make_shared<MeteredGroup>(group_);
    DistributedDataParallel ddp(*model, metered, ddp_options(options_.machine));
    const auto optimizer = make_optimizer(model->parameters());
    Batches batches = make_batches();
    metered->reset_sent();
    Result out;
    const auto start = begin();
    for (std::int64_t step = 0; step < options_.steps; ++step) {
      optimizer->zero_grad();
      backward(batches, [&](const Tensor& x) { return ddp.forward(x); });
      optimizer->step();
    }
    end(out, start, static_cast<double>(options_.steps), *model);
    out.updates = static_cast<double>(options_.steps);
    out.root_bytes = 2 * static_cast<double>(metered->sent().value);  // ring: received = sent
    return out;
  }

  [[nodiscard]] Result with_server() {
    const auto model = make_model();
    const std::int64_t budget = options_.steps * group_->size();
    ParameterServer server(
        *group_, *model, [&](std::vector<Tensor> p) { return make_optimizer(std::move(p)); },
        budget);
    Batches batches = make_batches();
    Result out;
    const auto start = begin();
    do {
      backward(batches, [&](const Tensor& x) { return model->forward(x); });
    } while (server.push_and_pull());
    server.finish();
    end(out, start, static_cast<double>(server.staleness().size()), *model);
    const std::vector<std::int64_t>& mine = server.staleness();
    out.staleness = all_of({mine.begin(), mine.end()});
    out.updates = static_cast<double>(out.staleness.size());
    out.root_bytes = server.bytes();
    out.busy = server.busy_seconds();
    return out;
  }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] std::unique_ptr<MLP> make_model() const {
    manual_seed(options_.seed);
    const std::int64_t pixels = train_.images().height * train_.images().width;
    auto model = std::make_unique<MLP>(
        std::vector<std::int64_t>{pixels, options_.hidden, options_.hidden, kClasses});
    model->to(device_);
    return model;
  }
  [[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(std::vector<Tensor> parameters) const {
    return std::make_unique<SGD>(std::move(parameters),
                                 SGDOptions{.lr = options_.lr, .momentum = options_.momentum});
  }
  [[nodiscard]] Batches make_batches() const {
    return {train_, *group_, options_.batch, options_.seed, 0};
  }

  template <class Forward>
  void backward(Batches& batches, const Forward& forward) const {
    if (group_->rank() == options_.slow_rank)
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(options_.slow_ms));
    const Batch batch = batches.next().to(device_);
    cross_entropy(forward(batch.inputs), batch.targets).backward();
  }

  Clock::time_point begin() const {
    group_->barrier();
    return Clock::now();
  }
  void end(Result& out, Clock::time_point start, double steps, Module& model) const {
    synchronize(device_);
    group_->barrier();
    out.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    for (const auto& row : gather_rows(*group_, {steps}))
      out.samples.push_back(row[0] * static_cast<double>(options_.batch));
    evaluate(out, model);
  }

  // Evaluates this rank's model. Only rank 0's result is printed: the ranks' parameters differ
  // after the last pull from the server.
  void evaluate(Result& out, Module& model) const {
    const NoGradGuard no_grad;
    const EvalGuard evaluating(model);
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < unseen_.size(); ++i) all.push_back(i);
    const Batch batch = unseen_.get(all).to(device_);
    const Tensor logits = model.forward(batch.inputs);
    out.loss = cross_entropy(logits, batch.targets).item<float>();
    const auto best = max(logits, 1).second.to_vector<std::int64_t>();
    const auto target = batch.targets.to_vector<std::int64_t>();
    for (std::size_t i = 0; i < best.size(); ++i) out.accuracy += best[i] == target[i] ? 1 : 0;
    out.accuracy /= static_cast<double>(best.size());
  }

  // Concatenates the ranks' vectors of non-negative numbers, padded with -1 for the exchange.
  [[nodiscard]] std::vector<double> all_of(const std::vector<double>& mine) const {
    double longest = 0;
    for (const auto& row : gather_rows(*group_, {static_cast<double>(mine.size())}))
      longest = std::max(longest, row[0]);
    std::vector<double> filled = mine, out;
    filled.resize(static_cast<std::size_t>(longest), -1);
    for (const auto& row : gather_rows(*group_, filled))
      std::ranges::copy_if(row, std::back_inserter(out), [](double s) { return s >= 0; });
    return out;
  }

  std::shared_ptr<comm::ProcessGroup> group_;
  const Options& options_;
  Device device_;
  ImageDataset train_, unseen_;
};

std::string list(const std::vector<double>& values) {
  std::string out;
  for (const double v : values) out += (out.empty() ? "" : " ") + fmt::format("{:.0f}", v);
  return out;
}

std::string table(const Result& ddp, const Result& server) {
  const auto rate = [](const Result& r) {
    double samples = 0;
    for (const double s : r.samples) samples += s;
    return fmt::format("{:.0f}", samples / r.seconds);
  };
  const auto per_update = [](const Result& r) {
    return fmt::format("{:.0f}", r.root_bytes / 1024 / r.updates);
  };
  Table out({{"", Table::Align::left}, {"DDP"}, {"parameter server"}});
  out.row({"seconds", fmt::format("{:.2f}", ddp.seconds), fmt::format("{:.2f}", server.seconds)});
  out.row({"samples/s", rate(ddp), rate(server)});
  out.row({"samples by rank", list(ddp.samples), list(server.samples)});
  out.row({"updates", fmt::format("{:.0f}", ddp.updates), fmt::format("{:.0f}", server.updates)});
  out.row({"staleness, median", "0", fmt::format("{:.0f}", median(server.staleness))});
  out.row({"staleness, largest", "0",
           fmt::format("{:.0f}", *std::ranges::max_element(server.staleness))});
  const double same = server.updates / ddp.updates;  // server updates per DDP update
  out.row({"KiB through rank 0 for as many samples", per_update(ddp),
           fmt::format("{:.0f}", server.root_bytes / 1024 / server.updates * same)});
  out.row({"rank 0 busy with updates", "-",
           fmt::format("{:.0f} %", 100 * server.busy / server.seconds)});
  out.row({"loss on unseen digits", fmt::format("{:.4f}", ddp.loss),
           fmt::format("{:.4f}", server.loss)});
  out.row({"accuracy", fmt::format("{:.2f} %", 100 * ddp.accuracy),
           fmt::format("{:.2f} %", 100 * server.accuracy)});
  return out.str();
}

int run(int argc, char** argv) {
  Options o;
  CommandLine app("Trains a network to read digits with DDP and with a parameter server.",
                  "async_vs_ddp");
  app.add_option("--steps", o.steps,
                 "steps of each rank with DDP; the server run has the same total")
      ->check(whole(1, 1'000'000));
  app.add_option("--batch", o.batch, "samples per rank and step")->check(whole(1, 1 << 20));
  app.add_option("--hidden", o.hidden, "width of the two hidden layers")->check(whole(1, 1 << 16));
  app.add_option("--draw", o.draw, "digits to draw")->check(whole(1, 10'000'000));
  app.add_option("--lr", o.lr, "learning rate of both runs")->check(above_zero(1e6));
  app.add_option("--momentum", o.momentum, "momentum of both runs")->check(real(0, 1));
  app.add_option("--slow-rank", o.slow_rank, "rank that sleeps in every step; -1: none")
      ->check(whole(-1, 16383));
  app.add_option("--slow-ms", o.slow_ms, "length of that sleep, in milliseconds")
      ->check(real(0, 10'000));
  app.add_option("--seed", o.seed, "seed of the model and of the order of the samples");
  o.machine.algorithm = "ring";
  add_machine_options(app, o.machine);
  if (!app.parse(argc, argv)) return 0;
  const auto group = start(o.machine);
  std::optional<Experiment> experiment;
  together(*group, [&] {
    require(o.slow_rank < group->size(),
            fmt::format("--slow-rank {}: the ranks are 0 to {}", o.slow_rank, group->size() - 1));
    require(o.machine.algorithm == "ring",
            "--algorithm: this program counts the ring's bytes; leave it out");
    experiment.emplace(group, o);
  });
  const Result ddp = experiment->with_ddp();
  const Result server = experiment->with_server();
  together(*group, [&] {
    for (const auto& [name, result] : {std::pair("DDP", &ddp), std::pair("the server", &server)})
      if (!std::isfinite(result->loss))
        throw Error(fmt::format("the loss with {} is {}: try a smaller --lr", name, result->loss));
  });
  if (group->rank() != 0) return 0;
  fmt::print(
      "digits; {} ranks, batches of {}, {} steps of DDP{}\n\n{}", group->size(), o.batch, o.steps,
      o.slow_rank < 0 ? "" : fmt::format("; rank {} sleeps {} ms a step", o.slow_rank, o.slow_ms),
      table(ddp, server));
  return 0;
}

}  // namespace
}  // namespace ringsmith::apps

int main(int argc, char** argv) {
  return ringsmith::apps::run_program("async_vs_ddp",
                                      [&] { return ringsmith::apps::run(argc, argv); });
}
