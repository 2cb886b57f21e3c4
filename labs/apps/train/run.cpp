#include "labs/apps/train/run.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <span>

#include "labs/apps/train/operations.hpp"
#include "labs/apps/train/run_report.hpp"
#include "labs/apps/train/trace_file.hpp"
#include "runtime/base/process.hpp"
#include "runtime/base/table.hpp"
#include "runtime/device/memory.hpp"
#include "runtime/device/profiler.hpp"
#include "runtime/parallel/drift.hpp"
#include "runtime/tensor/storage.hpp"

namespace ringsmith::apps {

namespace {

using trace::Category;

constexpr double kNsPerSecond = 1e9;
constexpr double kMiB = 1 << 20;

// Every rank that can access rank 0's folder (on rank 0's host, or on a shared file system) keeps
// its flight recorder there. Collective, also for ranks that write to another folder.
void keep_flight_beside(comm::ProcessGroup& group, const std::string& folder, bool wanted) {
  std::array<std::uint8_t, 4096> path{};
  if (group.rank() == 0)
    std::filesystem::absolute(folder).string().copy(reinterpret_cast<char*>(path.data()),
                                                    path.size() - 1);
  group.broadcast(std::span<std::uint8_t>(path), 0);
  const std::string seen(reinterpret_cast<const char*>(path.data()));
  if (wanted && std::filesystem::is_directory(seen)) group.keep_flight_in(seen);
}

}  // namespace

TrainingRun::TrainingRun(comm::ProcessGroup& group, const TrainOptions& options)
    : group_(group),
      options_(options),
      clock_(!options.no_trace),
      checkpoints_(group, options, [this](const std::string& text) { say(text); }),
      progress_(group.rank() == 0 ? Progress::parse(options.progress) : Progress::Style::off) {
  if (options.heeds_signals && saves_when_stopped(options)) stop_request_.emplace();
}

void TrainingRun::open_folder() {
  together(group_, [&] {
    if (group_.rank() != 0) return;
    folder_ = checkpoints_.open_folder();
  });
  keep_flight_beside(group_, folder_, options_.flight_dir.empty());
}

void TrainingRun::resume(const Trained& trained) {
  model_ = &trained.model;
  if (trained.replicas != nullptr) replicas_ = trained.replicas;
  reached_ = checkpoints_.resume(trained);
  together(group_, [&] {
    if (group_.rank() != 0) return;
    require_room_for_model(folder_, trained.model.state_dict());
    const std::string path = folder_ + "/metrics.jsonl";
    metrics_.lines = options_.resume.empty() ? std::make_unique<JsonLines>(path)
                                             : std::make_unique<JsonLines>(path, step());
  });
}

void TrainingRun::say(const std::string& text) const {
  if (group_.rank() != 0) return;
  std::FILE* out = options_.json ? stderr : stdout;
  fmt::print(out, "{}\n", text);
  std::fflush(out);
}

void TrainingRun::evaluate_with(std::function<Evaluation()> evaluation) {
  evaluation_.run = std::move(evaluation);
}

Evaluation TrainingRun::evaluate() {
  if (evaluation_.last_step == step()) return *evaluation_.last;
  const std::int64_t begin = trace::now_ns();
  const Evaluation now = evaluation_.run();
  evaluation_.last = now;
  evaluation_.last_step = step();
  const std::int64_t time = trace::now_ns() - begin;
  clock_.leave_out(time);
  if (options_.eval_every > 0 && group_.rank() == 0)
    note({{"step", step()},
          {"validation_loss", now.loss},
          {"validation_accuracy", now.accuracy},
          {"validation_samples", now.samples},
          {"evaluation_ms", static_cast<double>(time) / kNsPerMs}});
  if (step() == plan_.steps) {
    checkpoints_.require_sound(step());
    require_updates(group_, step(), updates());
  }
  return now;
}

void TrainingRun::start(const RunPlan& plan) {
  require(options_.eval_every == 0 || evaluation_.run,
          "--eval-every: this program evaluates only at its end; leave it out");
  plan_ = plan;
  clock_.start(plan.device);
}

bool TrainingRun::begin_step() {
  if (step() >= plan_.steps) return false;
  ++reached_.step;
  ++reached_.skipped;  // until step_done()
  profile::enable(options_.profile || options_.report);
  batches_ = 0;
  clock_.begin_step();
  return true;
}

void TrainingRun::fetched() {
  clock_.end_part("batch", Category::data);
  ++batches_;
  ++all_batches_;
  clock_.begin_part();
}

void TrainingRun::forward_done() {
  clock_.end_part("forward", Category::compute);
  clock_.begin_part();
}

void TrainingRun::backward_done() {
  clock_.end_part("backward", Category::compute);
  clock_.begin_part();
}

void TrainingRun::losses_done(double mean, LossExchange::Wish strongest) {
  reached_.last_loss = mean;
  checkpoints_.prove();
  if (strongest == LossExchange::Wish::stop) checkpoints_.stop(step() - 1);
  if (step() == 1) reached_.first_loss = mean;
  preempted_ = strongest == LossExchange::Wish::preempt;
  clock_.begin_part();
}

LossExchange::Wish TrainingRun::wish() const {
  if (checkpoints_.failed()) return LossExchange::Wish::stop;
  return stop_request_ && stop_request_->here() ? LossExchange::Wish::preempt
                                                : LossExchange::Wish::none;
}

void TrainingRun::step_done(bool made, double lr, double scale) {
  if (made) --reached_.skipped;
  clock_.end_part("optimizer", Category::optim);
  clock_.settle_parts();
  if (profile::enabled()) profile::settle();
  profile::enable(false);
  const StepTime time = clock_.end_step(step());
  if (group_.rank() == 0) record_step(time, lr, scale);
  if (options_.eval_every > 0 && step() % options_.eval_every == 0) (void)evaluate();
  const bool stops = preempted_ && step() < plan_.steps;
  if (stops || checkpoints_.due(step()) ||
      (options_.check_drift > 0 && step() % options_.check_drift == 0))
    compare_parameters();
  checkpoints_.step_done(reached_, stops);
  if (stops) stop_here();
}

void TrainingRun::stop_here() {
  checkpoints_.finish(step());
  progress_.clear();
  say(how_to_continue(step(), plan_.steps, folder_));
  throw QuietStop(ExitCode::preempted);
}

void TrainingRun::compare_parameters() {
  together(group_, [&] { check_drift(*replicas_, model_->named_parameters()); });
}

// A full disk must not stop the training run before the model is written.
void TrainingRun::note(const nlohmann::ordered_json& line) {
  if (!metrics_.lost.empty()) return;
  try {
    metrics_.lines->write(line);
  } catch (const Error& e) {
    metrics_.lost = fmt::format("{}; the lines from step {} on are missing", e.what(), step());
    say("warning: " + metrics_.lost);
  }
}

void TrainingRun::record_step(const StepTime& time, double lr, double scale) {
  const auto ms = [](std::int64_t ns) { return static_cast<double>(ns) / kNsPerMs; };
  const double units = plan_.units_per_batch * static_cast<double>(batches_);
  const double rate = units * kNsPerSecond / static_cast<double>(clock_.period());
  nlohmann::ordered_json line = {{"step", step()},
                                 {"loss", reached_.last_loss},
                                 {"lr", lr},
                                 {std::string(plan_.unit) + "_per_s", rate},
                                 {"step_ms", ms(time.step)}};
  if (options_.amp == "f16") line["scale"] = scale;
  if (clock_.step_clock().tracing()) {
    line["data_ms"] = ms(time.data);
    line["forward_ms"] = ms(time.forward);
    line["backward_ms"] = ms(time.backward);
    line["comm_ms"] = ms(time.comm);
    line["exposed_ms"] = ms(time.exposed);
    line["optimizer_ms"] = ms(time.optim);
  }
  if (options_.report) {
    line["resident_bytes"] = resident().value;
    if (plan_.device.is_cuda())
      line["device_bytes"] = device_allocator::stats(plan_.device).current.value;
  }
  note(line);

  // Means over the last steps are steady enough to be readable.
  const StepTime sum = clock_.recent();
  const auto steps = static_cast<double>(clock_.step_clock().steps());  // of this process
  const auto n = static_cast<double>(clock_.recent_steps());
  const double step_seconds = static_cast<double>(sum.step) / n / kNsPerSecond;
  const auto held_out = evaluation_.last ? std::optional(evaluation_.last->loss) : std::nullopt;
  progress_.update({step(), plan_.steps, reached_.last_loss, units / step_seconds, plan_.unit,
                    ms(sum.comm) / n, ms(sum.exposed) / n,
                    static_cast<double>(plan_.steps - step()) *
                        static_cast<double>(clock_.elapsed()) / kNsPerSecond / steps,
                    held_out});
  if (step() == plan_.steps) progress_.clear();
}

namespace {

// The parts of a step's time and, last, the step, which is their sum. Hidden communication is part
// of forward and backward.
struct Part {
  const char* name;
  const char* key;
  std::int64_t (*of)(const StepTime&);
};
constexpr Part kParts[] = {
    {"data", "data_ms", [](const StepTime& t) { return t.data; }},
    {"forward", "forward_ms", [](const StepTime& t) { return t.forward; }},
    {"backward", "backward_ms", [](const StepTime& t) { return t.backward; }},
    {"exposed communication", "exposed_ms", [](const StepTime& t) { return t.exposed; }},
    {"optimizer", "optimizer_ms", [](const StepTime& t) { return t.optim; }},
    {"other", "other_ms", [](const StepTime& t) { return t.other(); }},
    {"step", "step_ms", [](const StepTime& t) { return t.step; }}};
constexpr Part kComm = {"communication in all", "comm_ms",
                        [](const StepTime& t) { return t.comm; }};
constexpr Part kWaitWithin = {"waiting for ranks of the same node", "wait_within_ms",
                              [](const StepTime& t) { return t.wait_within; }};
constexpr Part kWaitBetween = {"for ranks of other nodes", "wait_between_ms",
                               [](const StepTime& t) { return t.wait_between; }};

struct Report {  // of all ranks
  std::int64_t steps = 0;
  std::vector<StepTime> time;  // sum over all steps, by rank
  struct Memory {              // bytes
    double peak_resident, peak_tensors;
    double peak_device;    // tensors on the rank's GPU
    double communication;  // at the end
  };
  std::vector<Memory> memory;  // by rank

  [[nodiscard]] double hidden_fraction() const {
    StepTime sum;
    for (const StepTime& t : time) sum += t;
    return sum.hidden_fraction();
  }
};

// Collective.
Report make_report(comm::ProcessGroup& group, const StepClock& clock, Device device) {
  std::vector<double> mine;
  for (const auto time : kStepTimes) mine.push_back(static_cast<double>(clock.total().*time));
  for (const Bytes peak :
       {peak_resident(), host_allocator::stats().peak,
        device.is_cpu() ? Bytes(0) : device_allocator::stats(device).peak, communication_memory()})
    mine.push_back(static_cast<double>(peak.value));
  Report out;
  out.steps = clock.steps();
  for (const auto& row : gather_rows(group, mine)) {
    auto next = row.begin();
    StepTime& of_rank = out.time.emplace_back();
    for (const auto time : kStepTimes) of_rank.*time = static_cast<std::int64_t>(*next++);
    out.memory.push_back({next[0], next[1], next[2], next[3]});
  }
  return out;
}

struct Spread {
  double mean = 0;  // milliseconds per step
  double most = 0;  // of the slowest rank
};

Spread spread(const Report& report, const Part& part) {
  Spread out;
  for (const StepTime& t : report.time) {
    const double ms = static_cast<double>(part.of(t)) / kNsPerMs /
                      static_cast<double>(std::max<std::int64_t>(report.steps, 1));
    out.mean += ms / static_cast<double>(report.time.size());
    out.most = std::max(out.most, ms);
  }
  return out;
}

std::string time_table(const Report& report) {
  Table table(
      {{"where the time went", Table::Align::left}, {"ms/step"}, {"slowest rank"}, {"share"}});
  const double step = spread(report, kParts[std::size(kParts) - 1]).mean;
  for (const Part& part : kParts) {
    const Spread s = spread(report, part);
    table.row({part.name, fmt::format("{:.2f}", s.mean), fmt::format("{:.2f}", s.most),
               fmt::format("{:.1f} %", step > 0 ? 100 * s.mean / step : 0.0)});
  }
  const double comm = spread(report, kComm).mean;
  std::string out = table.str();
  if (comm > 0)
    out +=
        fmt::format("communication in all: {:.2f} ms/step, {:.0f} % of it hidden by computation\n",
                    comm, 100 * report.hidden_fraction());
  const Spread between = spread(report, kWaitBetween), within = spread(report, kWaitWithin);
  if (between.most > 0)
    out += fmt::format("{}: {:.2f} ms/step; {}: {:.2f} ms/step\n", kWaitWithin.name, within.mean,
                       kWaitBetween.name, between.mean);
  return out;
}

std::string memory_line(const Report& report) {
  std::string out = "peak memory by rank, MiB (of which tensors): ", gpus;
  for (const Report::Memory& m : report.memory) {
    out += fmt::format("{}{:.0f} ({:.0f})", &m == report.memory.data() ? "" : ", ",
                       m.peak_resident / kMiB, m.peak_tensors / kMiB);
    if (m.peak_device > 0)
      gpus += fmt::format("{}{:.1f}", gpus.empty() ? "" : ", ", m.peak_device / kMiB);
  }
  if (!gpus.empty()) out += "\npeak memory of tensors on the ranks' GPUs, MiB: " + gpus;
  return out + "\n";
}

nlohmann::ordered_json to_json(const Report& report) {
  nlohmann::ordered_json out;
  for (const Part& part : kParts) out[part.key] = spread(report, part).mean;
  for (const Part& part : {kComm, kWaitWithin, kWaitBetween})
    out[part.key] = spread(report, part).mean;
  out["hidden_fraction"] = report.hidden_fraction();
  for (const Report::Memory& m : report.memory) {
    out["peak_resident_bytes"].push_back(static_cast<std::int64_t>(m.peak_resident));
    out["peak_tensor_bytes"].push_back(static_cast<std::int64_t>(m.peak_tensors));
    if (m.peak_device > 0)
      out["peak_device_bytes"].push_back(static_cast<std::int64_t>(m.peak_device));
  }
  return out;
}

// The contents of run.json, except those that finish() adds.
nlohmann::ordered_json facts_of(const comm::ProcessGroup& group, const TrainOptions& o,
                                const RunPlan& plan, const Outcome& outcome, const Report& report) {
  const auto program = outcome.metadata.find("program");
  nlohmann::ordered_json out = {
      {"program", program == outcome.metadata.end() ? "" : program->second},
      {"command", fmt::format("{}", fmt::join(own_command_line(), " "))},
      {"headline", outcome.headline.substr(0, outcome.headline.find('\n'))},
      {"host", host_name()},
      {"world", group.size()},
      {"device", plan.device.str()},
      {"transport", group.describe_transport()},
      {"bucket_cap_mb", o.bucket_cap_mb},
      {"overlap", o.overlap},
      {"algorithm", o.algorithm},
      {"communication_hook", o.comm_hook},
      {"amp", o.amp},
      {"kernels", o.kernels},
      {"threads", o.threads},
      {"unit", plan.unit}};
  out.update(to_json(report));
  for (const Report::Memory& m : report.memory)
    out["memory"].push_back({{"resident", m.peak_resident},
                             {"tensors", m.peak_tensors},
                             {"communication", m.communication},
                             {"device", m.peak_device}});
  return out;
}

}  // namespace

void TrainingRun::finish(const Outcome& outcome) {
  compare_parameters();
  clock_.step_clock().keep_rest();
  const OperationProfile operations{.on_device = plan_.device.is_cuda(),
                                    .steps = clock_.step_clock().steps(),
                                    .step_ns = clock_.step_clock().total().step,
                                    .rows = profile::take_rows()};
  const Report report = make_report(group_, clock_.step_clock(), plan_.device);
  const std::int64_t resumed_at = step() - report.steps;
  together(group_, [&] {
    if (group_.rank() == 0) save_model(folder_, outcome.model, outcome.metadata);
    if (!metrics_.lost.empty()) throw Error(metrics_.lost + "; the trained model was saved");
  });
  checkpoints_.finish(step());
  if (clock_.step_clock().tracing())
    write_trace(group_, clock_.step_clock(), folder_ + "/trace.json");
  const double seconds = static_cast<double>(clock_.elapsed()) / kNsPerSecond;
  const double rate =
      report.steps > 0 ? plan_.units_per_batch * static_cast<double>(all_batches_) / seconds : 0;
  const bool profiled = !operations.rows.empty();
  together(group_, [&] {
    if (group_.rank() != 0) return;
    auto facts = facts_of(group_, options_, plan_, outcome, report);
    facts["seconds"] = seconds;
    facts["rate"] = rate;
    if (profiled) facts["operations"] = to_json(operations);
    write_facts(folder_, facts);
    if (options_.report) (void)write_report(folder_);
  });
  if (stop_request_) stop_request_->work_is_done();
  if (group_.rank() != 0) return;

  std::string text = fmt::format(
      "\n{} steps{} in {}: loss {:.4f} -> {:.4f}, {} {}/s on {} rank{}\n{}\n\n", report.steps,
      resumed_at > 0 ? fmt::format(" after the first {}", resumed_at) : "",
      format_duration(seconds), reached_.first_loss, reached_.last_loss, format_count(rate),
      plan_.unit, group_.size(), group_.size() == 1 ? "" : "s", outcome.headline);
  if (reached_.skipped > 0)
    text += fmt::format("skipped: {} of {} steps, whose gradients were infinite or NaN\n\n",
                        reached_.skipped, step());
  if (clock_.step_clock().tracing()) text += time_table(report) + "\n";
  if (options_.profile) text += operation_table(operations) + "\n";
  text += memory_line(report);
  text +=
      fmt::format("files in {}:\n  metrics.jsonl, model.safetensors{}{}", folder_,
                  options_.report ? ", report.html" : "",
                  clock_.step_clock().tracing() ? ", trace.json (open it in ui.perfetto.dev)" : "");
  say(text);

  if (options_.json) {
    nlohmann::ordered_json out = {{"ranks", group_.size()},
                                  {"steps", report.steps},
                                  {"seconds", seconds},
                                  {"first_loss", reached_.first_loss},
                                  {"last_loss", reached_.last_loss},
                                  {std::string(plan_.unit) + "_per_s", rate}};
    if (resumed_at > 0) out["resumed_at"] = resumed_at;
    if (reached_.skipped > 0) out["skipped_steps"] = reached_.skipped;
    for (const auto& [name, value] : outcome.figures) out[name] = value;
    out.update(to_json(report));
    out["run_dir"] = folder_;
    if (options_.profile) out["operations"] = to_json(operations);
    fmt::print("{}\n", out.dump());
    std::fflush(stdout);
  }
}

}  // namespace ringsmith::apps
