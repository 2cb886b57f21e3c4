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
#include <optional>
#include <span>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/train/accumulate.hpp"
#include "labs/apps/train/evaluate.hpp"
#include "labs/apps/train/progress.hpp"
#include "labs/apps/train/run_checkpoints.hpp"
#include "labs/apps/train/run_files.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/sha256.hpp"
#include "runtime/data/sampler.hpp"
#include "runtime/job/place.hpp"
#include "runtime/parallel/beyond/per_step.hpp"
#include "runtime/parallel/drift.hpp"
#include "runtime/parallel/stop_request.hpp"

namespace ringsmith::apps {

namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::system_clock;

constexpr std::chrono::seconds kLockPatience{1};  // for a rank that ends while this rank starts

double seconds_now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

void check_options(const TrainOptions& o) {
  const auto refuse = [](bool given, const std::string& option, const std::string& why) {
    require(!given, "--per-step cannot be combined with " + option + ": " + why);
  };
  refuse(o.global_batch != 0, "--global-batch", "the number of ranks changes; give --batch");
  refuse(o.comm_hook != "none", "--comm-hook", "gradients travel as they are; leave it out");
  refuse(o.ddp != "buckets", "--ddp " + o.ddp,
         "a rank that joins adds its zeros to buckets; leave it out");
  refuse(o.check_drift != 0, "--check-drift",
         "ranks compare their parameters at the end; leave it out");
  refuse(o.eval_every != 0, "--eval-every", "it evaluates at the end; leave it out");
  refuse(o.ddp_logging || o.json || o.profile || o.report,
         "--ddp-logging, --json, --profile and --report",
         "--run-dir has a file of each rank's steps");
  refuse(o.algorithm == "fastest", "--algorithm fastest", "name the algorithm, or leave it out");
  refuse(o.bootstrap != "auto" && o.bootstrap != "env", "--bootstrap " + o.bootstrap,
         "the ranks meet through ringrun");
  require(!o.run_dir.empty() || (o.save_every == 0 && o.resume.empty()),
          "--per-step with --save-every or --resume needs --run-dir: another rank writes there if "
          "the first one is lost");
}

std::string digest_of(const Module& model) {
  Sha256 hash;
  for (const Tensor& p : model.parameters()) {
    const Tensor values = p.detach().cpu().contiguous();
    hash.update({data_of(values), size_in_bytes(values).value});
  }
  return hash.hex();
}

// Opens this rank's file of attempts; returns null without a folder. In a resumed run (`reopens`),
// a rank continues the earlier run's file. A rank that joins after the first quorum continues its
// predecessor's file, if there is one. Otherwise throws UsageError if the file exists.
std::unique_ptr<JsonLines> open_history(const std::string& folder, int rank,
                                        const PerStepTraining& training, bool reopens) {
  if (folder.empty()) return nullptr;
  const std::string path = fmt::format("{}/steps-rank-{}.jsonl", folder, rank);
  const auto& quorum = training.quorum();
  if (quorum.step == 0 && reopens) return std::make_unique<JsonLines>(path, training.step() - 1);
  return quorum.id == 1 ? std::make_unique<JsonLines>(path)
                        : std::make_unique<JsonLines>(path, training.step());
}

}  // namespace

class PerStepRun::Announcer {
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

// Each rank reads checkpoints, and the first rank writes them, as if it trained alone: no rank may
// wait for a rank that may be lost. The rank that is first when a step begins writes the state
// after the previous step, if that is due and has not been written.
class PerStepRun::TurnsToSave {
 public:
  struct Length {
    int ranks;  // at the start
    std::int64_t steps;
  };
  // The arguments must outlive this object. alone: a group of this rank only.
  TurnsToSave(comm::ProcessGroup& alone, const TrainOptions& o, const PerStepTask& task,
              Length length, StepSampler& sampler)
      : options_(o),
        patience_(static_cast<std::int64_t>(500 * o.timeout)),
        trained_{
            .model = task.model,
            .optimizer = task.optimizer,
            .scaler = task.scaler,
            .states = {sampler_state([&] { return sampler.state(); },
                                     [&](const SamplerState& state) { sampler.load_state(state); }),
                       order_state(
                           [this] { return training_->ready_order(); },
                           [this](const std::vector<int>& order) { begun_.ready_order = order; }),
                       {"first_loss", [this] { return fmt::format("{}", first_loss_); },
                        [this](const std::string& text) { first_loss_ = std::stod(text); }}},
            .ranks = length.ranks,
            .batch_size = o.batch,
            .steps = length.steps,
            // All ranks use the same samples, so that all reach the same verdict.
            .next_loss =
                [&, length] {
                  const NoGradGuard no_grad;
                  std::vector<std::int64_t> samples = sampler.indices(0, length.ranks);
                  samples.resize(static_cast<std::size_t>(o.batch));
                  const Batch batch = task.data.get_in_epoch(samples, sampler.epoch(length.ranks))
                                          .to(task.model.device());
                  const Autocast autocast = autocast_of(o);
                  return task.loss(task.model.forward(batch.inputs), batch.targets).item<float>();
                },
            .data = task.inputs.front().second,
            .fixed = task.fixed},
        checkpoints_(alone, o, [this](const std::string& text) { say(text); }) {
    checkpoints_.describe(trained_);
  }

  PerStepOptions::Begin begin(bool first) {
    speaks_ = first;
    try {
      checkpoints_.look_in(options_.run_dir);
      const Reached reached = checkpoints_.resume(trained_);
      begun_.step = saved_ = reached.step;
      begun_.updates = reached.step - reached.skipped;
      begun_.from = checkpoints_.resumed_from();
      if (first && options_.save_every > 0) checkpoints_.take_lock(kLockPatience);
      return begun_;
    } catch (const Error& e) {
      if (first) throw;
      throw QuietStop(e.exit_code(), e.what());
    }
  }
  void follow(const PerStepTraining& training) { training_ = &training; }

  // The states to send to a rank that joins. PerStepTraining sends model, optimizer and scaler.
  [[nodiscard]] Metadata save_states() const {
    Metadata out;
    for (const RunState& state : trained_.states) out[state.name] = state.save();
    return out;
  }
  void load_states(const Metadata& values) const {
    for (const RunState& state : trained_.states) state.load(values.at(state.name));
  }

  void save_if_due() {
    const std::int64_t step = training_->step();
    if (!training_->is_first() || !checkpoints_.due(step) || saved_ == step) return;
    if (checkpoints_.ready(patience_)) return save(false);
    speaks_ = true;
    say(fmt::format("step {}: no checkpoint is written: the previous one is not on the disk yet",
                    step));
    saved_ = step;
  }
  void step_counted() {
    if (training_->step() == 1) first_loss_ = training_->loss();
    checkpoints_.prove();
    if (checkpoints_.failed()) checkpoints_.stop(training_->step());
  }
  // Called on the first rank when the final state has proved sound. Blocks until the checkpoint is
  // on the disk.
  void save_last() {
    if (training_->step() > begun_.step) save(true);
    checkpoints_.finish(training_->step());
  }

 private:
  void say(const std::string& text) const {
    if (!speaks_) return;
    fmt::print("{}\n", text);
    std::fflush(stdout);
  }
  void save(bool last) {
    saved_ = training_->step();
    checkpoints_.take_lock(patience_);
    checkpoints_.step_done({saved_, first_loss_, training_->loss(), saved_ - training_->updates()},
                           last);
  }

  const TrainOptions& options_;
  std::chrono::milliseconds patience_;  // half of --timeout: the other ranks wait, too
  bool speaks_ = false;
  double first_loss_ = 0;
  std::int64_t saved_ = 0;  // step of the last checkpoint written, read or skipped here
  PerStepOptions::Begin begun_;
  const PerStepTraining* training_ = nullptr;
  Trained trained_;
  RunCheckpoints checkpoints_;
};

struct PerStepRun::State {
  State(const TrainOptions& o, const PerStepTask& task);
  [[nodiscard]] double gradients(DistributedDataParallel& ddp, const Turn& turn);
  [[nodiscard]] PerStepOptions training_options();
  void record(Json line) const;

  const TrainOptions& o;
  PerStepTask task;
  std::optional<StopRequest> stop;
  std::int64_t steps = 0;
  std::optional<StepSampler> sampler;
  std::shared_ptr<comm::ProcessGroup> alone;
  std::optional<TurnsToSave> checkpoints;
  std::optional<PerStepTraining> training;
  std::unique_ptr<JsonLines> history;
  Announcer announcer;
  Progress progress;
  struct {
    bool over = false;  // the other ranks had finished the training
    std::int64_t step = 0;
    double seconds = 0;
  } at_start;
  // The current step:
  std::int64_t step = 0;
  comm::store::QuorumAnswer quorum;
  std::vector<std::int64_t> samples;  // of this rank
};

PerStepRun::State::State(const TrainOptions& options, const PerStepTask& the_task)
    : o(options), task(the_task), progress(Progress::parse(o.progress)) {
  check_options(o);
  if (o.heeds_signals && saves_when_stopped(o)) stop.emplace();
  const int rank = comm::rank_hint();
  const bool reopens = o.resume == "auto" && holds_checkpoints(o.run_dir);
  if (!o.run_dir.empty()) {
    share_run_dir(o.run_dir);
    require_room_for_model(o.run_dir, task.model.state_dict());
  }
  const std::chrono::milliseconds timeout(static_cast<std::int64_t>(o.timeout * 1e3));
  const auto coordinator = connect_to_coordinator(timeout);
  const int world = comm::find_place(comm::BootstrapKind::env, comm::process_environment()).world;
  const std::int64_t batches = std::max<std::int64_t>(1, task.data.size() / (o.batch * world));
  steps = steps_of(o, (batches + o.accumulate - 1) / o.accumulate, task.default_steps);
  sampler.emplace(task.data.size(), o.batch, o.seed, o.accumulate);
  alone = comm::init_process_group(
      {.timeout = timeout, .device = {}, .bootstrap = comm::BootstrapKind::self});
  checkpoints.emplace(*alone, o, task, TurnsToSave::Length{world, steps}, *sampler);
  training.emplace(task.model, task.optimizer, coordinator, rank, training_options());
  checkpoints->follow(*training);
  if (!training->over()) history = open_history(o.run_dir, rank, *training, reopens);
  at_start = {training->over(), training->step(), seconds_now()};
}

PerStepOptions PerStepRun::State::training_options() {
  PerStepOptions options;
  options.group = group_of(o);
  options.group.settings.insert(options.group.settings.end(), task.inputs.begin(),
                                task.inputs.end());
  if (o.save_every > 0 || !o.resume.empty())
    options.group.settings.emplace_back(
        "the folder of --run-dir, in which ranks take turns to save,",
        std::filesystem::weakly_canonical(o.run_dir).string());
  options.ddp = ddp_options(o);
  options.scaler = &task.scaler;
  options.stop = stop ? &*stop : nullptr;
  options.save = [this] { return checkpoints->save_states(); };
  options.load = [this](const Metadata& values) { checkpoints->load_states(values); };
  options.begin = [this](bool first) { return checkpoints->begin(first); };
  return options;
}

void PerStepRun::State::record(Json line) const {
  line["time"] = seconds_now();
  if (history) history->write(line);
}

double PerStepRun::State::gradients(DistributedDataParallel& ddp, const Turn& turn) {
  // Random numbers depend on the step and the rank's place in it, not on earlier steps.
  manual_seed(o.seed + 1 + static_cast<std::uint64_t>(turn.rank) +
              1'000'003 * static_cast<std::uint64_t>(turn.step));
  samples = sampler->indices(turn.rank, turn.ranks);
  const std::int64_t epoch = sampler->epoch(turn.ranks), group = sampler->batches(turn.ranks);
  std::span<const std::int64_t> left(samples);
  StepLoss sum;
  for_each_micro_step(ddp, group, [&](bool /*last*/) {
    const auto taken = left.first(static_cast<std::size_t>(o.batch));
    left = left.subspan(taken.size());
    const Batch batch = task.data.get_in_epoch(taken, epoch).to(task.model.device());
    const Tensor loss = micro_loss(ddp, batch, group, o, task.loss);
    sum.add(loss);
    task.scaler.scale(loss).backward();
  });
  return sum.value();
}

PerStepRun::PerStepRun(const TrainOptions& o, const PerStepTask& task)
    : state_(std::make_unique<State>(o, task)) {}

PerStepRun::~PerStepRun() = default;

std::int64_t PerStepRun::steps() const { return state_->steps; }

std::int64_t PerStepRun::updates() const { return state_->training->updates(); }

bool PerStepRun::begin_step() {
  State& s = *state_;
  if (s.at_start.over || s.training->step() >= s.steps || s.training->stop_asked()) return false;
  s.announcer.look(*s.training);
  s.quorum = s.training->quorum();
  s.step = s.training->step();
  s.checkpoints->save_if_due();
  s.samples.clear();
  return true;
}

bool PerStepRun::try_gradients() {
  State& s = *state_;
  const std::optional<Turn> turn = s.training->try_gradients(
      [&](DistributedDataParallel& ddp, const Turn& mine) { return s.gradients(ddp, mine); });
  if (turn) {
    s.sampler->step_done(turn->ranks);
  } else if (!s.training->stop_asked()) {
    s.announcer.say(*s.training, "repeated: " + s.training->last_failure());
    s.record({{"step", s.step},
              {"quorum", s.quorum.id},
              {"ranks", s.quorum.ranks},
              {"failed", s.training->last_failure()}});
  }
  return turn.has_value();
}

void PerStepRun::step_done(bool made, double /*lr*/, double scale) {
  State& s = *state_;
  PerStepTraining& training = *s.training;
  training.update_done(made);
  if (!std::isfinite(training.loss())) {
    if (!training.is_first()) throw QuietStop(ExitCode::internal);
    throw Error(
        fmt::format("the loss is {} at step {}; training has stopped, no model was "
                    "written: try a smaller --lr, or look for bad values in the data",
                    training.loss(), s.step));
  }
  s.checkpoints->step_counted();
  Json line = {{"step", s.step},          {"quorum", s.quorum.id},
               {"ranks", s.quorum.ranks}, {"joining", s.quorum.joining},
               {"samples", s.samples},    {"loss", training.loss()}};
  if (s.o.amp == "f16") line["scale"] = scale;
  if (s.quorum.joining > 0) line["sha256"] = digest_of(s.task.model);
  s.record(std::move(line));
  if (!training.is_first()) return;
  const double took = seconds_now() - s.at_start.seconds;
  const auto done = static_cast<double>(training.step() - s.at_start.step);
  s.progress.update({.step = training.step(),
                     .steps = s.steps,
                     .loss = training.loss(),
                     .rate = done / took,
                     .unit = "steps",
                     .seconds_left = took / done * static_cast<double>(s.steps - training.step())});
}

int PerStepRun::finish(const std::function<std::string(comm::ProcessGroup&)>& evaluate,
                       const std::function<std::string()>& sample) {
  State& s = *state_;
  PerStepTraining& training = *s.training;
  if (s.at_start.over) {
    fmt::print("{}: training is complete; the other ranks have finished it\n", s.task.program);
    return s.stop && s.stop->here() ? static_cast<int>(ExitCode::preempted) : 0;
  }
  const std::int64_t reached = training.step();
  const bool stopped = reached < s.steps;
  std::string headline, digest, folder = s.o.run_dir;
  int ranks = 0;
  bool first = false;
  training.finish([&](comm::ProcessGroup& group) {
    first = group.rank() == 0;
    ranks = group.size();
    const std::string when = fmt::format("after step {}", reached);
    check_drift(group, s.task.model.named_parameters());
    require_finite(group, s.task.model.state_dict(), when);
    require_finite(group, s.task.optimizer.state_dict(), when);
    if (!stopped) {
      require_updates(group, s.steps, training.updates());
      digest = digest_of(s.task.model);
      headline = evaluate(group);
    }
    if (!first) return;
    // Must run inside finish(): afterwards, no rank is left to write the model.
    if (stopped || s.o.save_every > 0) s.checkpoints->save_last();
    if (stopped) return;
    if (folder.empty()) folder = create_run_dir("");
    save_model(folder, s.task.model.state_dict(), s.task.metadata);
  });
  s.progress.clear();
  if (stopped) {
    if (first) fmt::print("{}\n", how_to_continue(reached, s.steps, folder));
    throw QuietStop(ExitCode::preempted);
  }
  s.record({{"step", s.steps}, {"sha256", digest}});
  if (!first) return 0;
  if (const std::int64_t skipped = s.steps - training.updates(); skipped > 0)
    fmt::print("skipped: {} of {} steps, whose gradients were infinite or NaN\n", skipped, s.steps);
  fmt::print("{}{}\n{} ranks at the end, all with the same parameters: SHA-256 {}\n{}\n", headline,
             sample(), ranks, digest, folder + "/model.safetensors");
  return 0;
}

}  // namespace ringsmith::apps
