#include "labs/apps/train/per_step.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/train/accumulate.hpp"
#include "labs/apps/train/evaluate.hpp"
#include "labs/apps/train/progress.hpp"
#include "labs/apps/train/run_files.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/sha256.hpp"
#include "runtime/comm/bootstrap/place.hpp"
#include "runtime/data/sampler.hpp"
#include "runtime/parallel/drift.hpp"
#include "runtime/parallel/per_step.hpp"

namespace ringsmith::apps {

namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::system_clock;

double seconds_now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

void check_options(const TrainOptions& o) {
  const auto refuse = [](bool given, const std::string& option, const std::string& why) {
    require(!given, "--per-step does not go with " + option + ": " + why);
  };
  refuse(o.global_batch != 0, "--global-batch", "the number of ranks changes; give --batch");
  refuse(o.save_every != 0 || !o.resume.empty(), "--save-every and --resume",
         "the ranks that go on keep the training's state");
  refuse(o.comm_hook != "none", "--comm-hook", "gradients travel as they are; leave it out");
  refuse(o.check_drift != 0, "--check-drift",
         "ranks compare their parameters at the end; leave it out");
  refuse(o.eval_every != 0, "--eval-every", "it evaluates at the end; leave it out");
  refuse(o.ddp_logging || o.json || o.profile || o.report,
         "--ddp-logging, --json, --profile and --report",
         "--run-dir has a file of each rank's steps");
  refuse(o.algorithm == "fastest", "--algorithm fastest", "name the algorithm, or leave it out");
  refuse(o.bootstrap != "auto" && o.bootstrap != "env", "--bootstrap " + o.bootstrap,
         "the ranks meet through ringrun");
}

std::string digest_of(const Module& model) {
  Sha256 hash;
  for (const Tensor& p : model.parameters()) {
    const Tensor values = p.detach().cpu().contiguous();
    hash.update({data_of(values), size_in_bytes(values).value});
  }
  return hash.hex();
}

// What this rank did, a line for each try of a step; none without a folder. A rank that is started
// again goes on in the file of the one before it. UsageError if an earlier run has left one.
std::unique_ptr<JsonLines> open_history(const std::string& folder, int rank,
                                        const comm::store::QuorumAnswer& quorum) {
  if (folder.empty()) return nullptr;
  const std::string path = fmt::format("{}/steps-rank-{}.jsonl", folder, rank);
  return quorum.id == 1 ? std::make_unique<JsonLines>(path)
                        : std::make_unique<JsonLines>(path, quorum.step);
}

// What the first rank tells people about who is there.
class Announcer {
 public:
  void say(const PerStepTraining& training, const std::string& text) {
    if (!training.is_first()) return;
    fmt::print("step {}: {}\n", training.step(), text);
    std::fflush(stdout);
  }
  void look(const PerStepTraining& training) {
    const auto& now = training.quorum();
    if (now.ranks == ranks_) return;
    const auto with_state = now.ranks.end() - now.joining;
    std::string text = fmt::format("ranks {}", fmt::join(now.ranks.begin(), with_state, ", "));
    if (now.joining > 0)
      text += fmt::format("; {} joins", fmt::join(with_state, now.ranks.end(), ", "));
    if (!ranks_.empty() || now.id > 1) say(training, text);
    ranks_ = now.ranks;
  }

 private:
  std::vector<int> ranks_;
};

}  // namespace

int train_per_step(const TrainOptions& o, const PerStepTask& task) {
  check_options(o);
  const int rank = comm::rank_hint();
  if (!o.run_dir.empty()) {
    std::filesystem::create_directories(o.run_dir);
    require_room_for_model(o.run_dir, task.model.state_dict());
  }
  const auto coordinator =
      connect_to_coordinator(std::chrono::milliseconds(static_cast<std::int64_t>(o.timeout * 1e3)));
  const int world = comm::find_place(comm::BootstrapKind::env, comm::process_environment()).world;
  const std::int64_t batches = std::max<std::int64_t>(1, task.data.size() / (o.batch * world));
  const std::int64_t steps =
      steps_of(o, (batches + o.accumulate - 1) / o.accumulate, task.default_steps);
  const LrSchedule schedule = task.schedule(steps);
  StepSampler sampler(task.data.size(), o.batch, o.seed, o.accumulate);
  GradScaler scaler = scaler_of(o);

  PerStepOptions options;
  options.group = group_of(o);
  options.group.settings.insert(options.group.settings.end(), task.inputs.begin(),
                                task.inputs.end());
  options.ddp = ddp_options(o);
  options.scaler = &scaler;
  options.save = [&] {
    return Metadata{{"sampler.epoch", std::to_string(sampler.state().epoch)},
                    {"sampler.used", std::to_string(sampler.state().used)}};
  };
  options.load = [&](const Metadata& values) {
    sampler.load_state(
        {std::stoll(values.at("sampler.epoch")), std::stoll(values.at("sampler.used"))});
  };
  PerStepTraining training(task.model, task.optimizer, coordinator, rank, options);
  if (training.over()) {
    fmt::print("{}: the training is over; the others have done it\n", task.program);
    return 0;
  }

  const auto history = open_history(o.run_dir, rank, training.quorum());
  const auto record = [&](Json line) {
    line["time"] = seconds_now();
    if (history) history->write(line);
  };
  Announcer announcer;
  Progress progress(Progress::parse(o.progress));
  const Device device = task.model.device();
  const double begin = seconds_now();
  const std::int64_t began_at = training.step();
  std::vector<std::int64_t> mine;  // samples of the step at hand
  while (training.step() < steps) {
    announcer.look(training);
    const auto quorum = training.quorum();
    mine.clear();
    const bool counts = training.try_step(
        [&](DistributedDataParallel& ddp, const Turn& turn) {
          // Random numbers of the step and the place in it, whoever there was before.
          manual_seed(o.seed + 1 + static_cast<std::uint64_t>(turn.rank) +
                      1'000'003 * static_cast<std::uint64_t>(turn.step));
          mine = sampler.indices(turn.rank, turn.ranks);
          const std::int64_t epoch = sampler.epoch(turn.ranks), group = sampler.batches(turn.ranks);
          std::span<const std::int64_t> left(mine);
          double sum = 0;
          for_each_micro_step(ddp, group, [&](bool /*last*/) {
            const auto samples = left.first(static_cast<std::size_t>(o.batch));
            left = left.subspan(samples.size());
            const Batch batch = task.data.get_in_epoch(samples, epoch).to(device);
            const Tensor loss = micro_loss(ddp, batch, group, o, task.loss);
            scaler.scale(loss).backward();
            sum += loss.item<float>();
          });
          return sum;
        },
        [&](const Turn& turn) {
          sampler.step_done(turn.ranks);
          task.before_update();
          task.optimizer.set_lr(schedule(training.updates()));
        });
    if (!counts) {
      announcer.say(training, "is done again: " + training.last_failure());
      record({{"step", quorum.step},
              {"quorum", quorum.id},
              {"ranks", quorum.ranks},
              {"failed", training.last_failure()}});
      continue;
    }
    if (!std::isfinite(training.loss())) {
      if (!training.is_first()) throw QuietStop(ExitCode::internal);
      throw Error(
          fmt::format("the loss is {} at step {}; training has stopped, no model was "
                      "written: try a smaller --lr, or look for bad values in the data",
                      training.loss(), quorum.step));
    }
    Json line = {{"step", quorum.step},       {"quorum", quorum.id}, {"ranks", quorum.ranks},
                 {"joining", quorum.joining}, {"samples", mine},     {"loss", training.loss()}};
    if (o.amp == "f16") line["scale"] = scaler.get_scale();
    if (quorum.joining > 0) line["sha256"] = digest_of(task.model);
    record(std::move(line));
    if (!training.is_first()) continue;
    const double took = seconds_now() - begin;
    const auto done = static_cast<double>(training.step() - began_at);
    progress.update({.step = training.step(),
                     .steps = steps,
                     .loss = training.loss(),
                     .rate = done / took,
                     .unit = "steps",
                     .seconds_left = took / done * static_cast<double>(steps - training.step())});
  }

  std::string headline, digest, folder = o.run_dir;
  int ranks = 0;
  bool first = false;
  training.finish([&](comm::ProcessGroup& group) {
    first = group.rank() == 0;
    ranks = group.size();
    check_drift(group, task.model.named_parameters());
    require_finite(group, task.model.state_dict(), fmt::format("after step {}", steps));
    require_updates(group, steps, training.updates());
    digest = digest_of(task.model);
    headline = task.evaluate(group);
    if (!first) return;
    // Now: when this has counted nobody will come back to do it.
    if (folder.empty()) folder = create_run_dir("");
    save_model(folder, task.model.state_dict(), task.metadata);
  });
  progress.clear();
  record({{"step", steps}, {"sha256", digest}});
  if (!first) return 0;
  if (const std::int64_t skipped = steps - training.updates(); skipped > 0)
    fmt::print("skipped: {} of {} steps, whose gradients were infinite or NaN\n", skipped, steps);
  fmt::print("{}{}\n{} ranks at the end, all with the same parameters: SHA-256 {}\n{}\n", headline,
             task.sample(), ranks, digest, folder + "/model.safetensors");
  return 0;
}

}  // namespace ringsmith::apps
