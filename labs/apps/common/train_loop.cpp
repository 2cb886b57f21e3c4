#include "labs/apps/common/train_loop.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/losses.hpp"
#include "runtime/base/progress.hpp"
#include "runtime/base/run_dir.hpp"

namespace ringsmith::apps {

namespace {

using trace::Category;
using trace::Span;

constexpr double kNsPerMs = 1e6;
constexpr double kNsPerSecond = 1e9;

Progress::Style style_of(const TrainOptions& o, int rank) {
  if (rank != 0 || o.progress == "off") return Progress::Style::off;
  if (o.progress == "bar") return Progress::Style::bar;
  if (o.progress == "lines") return Progress::Style::lines;
  return Progress::detect();
}

// Means over the last steps, so that the progress line can be read.
class Recent {
 public:
  void add(const trace::StepTime& t) { times_[static_cast<std::size_t>(n_++ % kWindow)] = t; }
  [[nodiscard]] trace::StepTime sum() const {
    trace::StepTime out;
    for (std::int64_t i = 0; i < count(); ++i) out += times_[static_cast<std::size_t>(i)];
    return out;
  }
  [[nodiscard]] std::int64_t count() const { return std::min(n_, kWindow); }

 private:
  static constexpr std::int64_t kWindow = 20;
  std::array<trace::StepTime, kWindow> times_;
  std::int64_t n_ = 0;
};

// Rank 0's folder, on every rank that sees it: on its host, or on a file system that they share.
void keep_flight_beside(comm::ProcessGroup& group, const std::string& folder) {
  std::array<std::uint8_t, 4096> path{};
  if (group.rank() == 0)
    std::filesystem::absolute(folder).string().copy(reinterpret_cast<char*>(path.data()),
                                                    path.size() - 1);
  group.broadcast(std::span<std::uint8_t>(path), 0);
  const std::string seen(reinterpret_cast<const char*>(path.data()));
  if (std::filesystem::is_directory(seen)) group.keep_flight_in(seen);
}

}  // namespace

RunFiles open_run_files(comm::ProcessGroup& group, const TrainOptions& o) {
  RunFiles files;
  together(group, [&] {
    if (group.rank() != 0) return;
    files.folder = create_run_dir(o.run_dir);
    files.metrics = std::make_unique<JsonLines>(files.folder + "/metrics.jsonl");
  });
  if (o.flight_dir.empty()) keep_flight_beside(group, files.folder);
  return files;
}

TrainResult train(comm::ProcessGroup& group, const TrainOptions& o, const Recipe& recipe,
                  RunFiles& files, StepClock& clock) {
  LossExchange losses(group);
  Progress progress(style_of(o, group.rank()));
  Recent recent;
  TrainResult result;
  const std::int64_t begin = trace::now_ns();
  std::int64_t previous_end = begin;
  for (std::int64_t step = 1; step <= recipe.steps; ++step) {
    clock.begin();
    {
      const Span span("batch", Category::data);
      recipe.fetch();
    }
    const auto settle = [&] {
      if (clock.tracing()) synchronize(recipe.device);
    };
    Tensor loss;
    {
      const Span span("forward", Category::compute);
      loss = recipe.forward();
      settle();
    }
    losses.begin(loss.item<float>());
    {
      const Span span("backward", Category::compute);
      loss.backward();
      settle();
    }
    result.last_loss = losses.finish(step);
    if (step == 1) result.first_loss = result.last_loss;
    double lr = 0;
    {
      const Span span("optimizer", Category::optim);
      lr = recipe.update(step);
      settle();
    }
    const trace::StepTime t = clock.end(step);
    recent.add(t);

    if (group.rank() == 0) {
      const std::int64_t now = trace::now_ns();
      const auto ms = [](std::int64_t ns) { return static_cast<double>(ns) / kNsPerMs; };
      const double rate =
          recipe.units_per_step * kNsPerSecond / static_cast<double>(now - previous_end);
      nlohmann::ordered_json line = {{"step", step},
                                     {"loss", result.last_loss},
                                     {"lr", lr},
                                     {std::string(recipe.unit) + "_per_s", rate},
                                     {"step_ms", ms(t.step)}};
      if (clock.tracing()) {
        line["data_ms"] = ms(t.data);
        line["forward_ms"] = ms(t.forward);
        line["backward_ms"] = ms(t.backward);
        line["comm_ms"] = ms(t.comm);
        line["exposed_ms"] = ms(t.exposed);
        line["optimizer_ms"] = ms(t.optim);
      }
      files.metrics->write(line);

      const trace::StepTime sum = recent.sum();
      const auto n = static_cast<double>(recent.count());
      const double step_seconds = static_cast<double>(sum.step) / n / kNsPerSecond;
      progress.update({step, recipe.steps, result.last_loss, recipe.units_per_step / step_seconds,
                       recipe.unit, ms(sum.comm) / n, ms(sum.exposed) / n,
                       static_cast<double>(recipe.steps - step) * static_cast<double>(now - begin) /
                           kNsPerSecond / static_cast<double>(step)});
      previous_end = now;
    }
  }
  result.seconds = static_cast<double>(trace::now_ns() - begin) / kNsPerSecond;
  return result;
}

}  // namespace ringsmith::apps
