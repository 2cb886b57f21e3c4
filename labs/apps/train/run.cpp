#include "labs/apps/train/run.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
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

// Keeps flight recorders in rank 0's folder, on every rank that sees the folder: on rank 0's host,
// or on a shared file system. Collective, also for ranks that write to another folder.
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
      losses_(group),
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

std::int64_t TrainingRun::resume(const Trained& trained) {
  model_ = &trained.model;
  const Reached reached = checkpoints_.resume(trained);
  step_ = resumed_at_ = reached.step;
  updates_ = step_ - reached.skipped;
  first_loss_ = reached.first_loss;
  last_loss_ = reached.last_loss;
  together(group_, [&] {
    if (group_.rank() != 0) return;
    require_room_for_model(folder_, trained.model.state_dict());
    const std::string path = folder_ + "/metrics.jsonl";
    metrics_ = options_.resume.empty() ? std::make_unique<JsonLines>(path)
                                       : std::make_unique<JsonLines>(path, step_);
  });
  return step_;
}

void TrainingRun::say(const std::string& text) const {
  if (group_.rank() != 0) return;
  std::FILE* out = options_.json ? stderr : stdout;
  fmt::print(out, "{}\n", text);
  std::fflush(out);
}

void TrainingRun::evaluate_with(std::function<Evaluation()> evaluation) {
  evaluation_ = std::move(evaluation);
}

Evaluation TrainingRun::evaluate() {
  if (evaluated_at_ == step_) return *evaluated_;
  const std::int64_t begin = trace::now_ns();
  evaluated_ = evaluation_();
  evaluated_at_ = step_;
  const std::int64_t time = trace::now_ns() - begin;
  begin_ns_ += time;
  end_ns_ += time;
  if (options_.eval_every > 0 && group_.rank() == 0)
    note({{"step", step_},
          {"validation_loss", evaluated_->loss},
          {"validation_accuracy", evaluated_->accuracy},
          {"validation_samples", evaluated_->samples},
          {"evaluation_ms", static_cast<double>(time) / kNsPerMs}});
  if (step_ == plan_.steps) {
    checkpoints_.require_sound(step_);
    require_updates(group_, step_, updates_);
  }
  return *evaluated_;
}

void TrainingRun::start(const RunPlan& plan) {
  require(options_.eval_every == 0 || evaluation_,
          "--eval-every: this program evaluates only at its end; leave it out");
  plan_ = plan;
  begin_ns_ = end_ns_ = trace::now_ns();
}

void TrainingRun::begin_step() {
  ++step_;
  profile::enable(options_.profile || options_.report);
  batches_ = 0;
  step_loss_ = 0;
  clock_.begin();
  begin_part();
}

// Starts the clock of the next part.
void TrainingRun::begin_part() {
  part_ns_ = trace::now_ns();
  if (clock_.tracing() && plan_.device.is_cuda())
    part_event_ = Event::record(Stream::current(plan_.device), Event::Timing::on);
}

void TrainingRun::end_part(const char* name, Category category) {
  if (clock_.tracing() && plan_.device.is_cuda() && category != Category::data)
    parts_.push_back({name, category, std::move(part_event_),
                      Event::record(Stream::current(plan_.device), Event::Timing::on)});
  else
    trace::record(name, category, part_ns_, trace::now_ns());
}

// Records the device's parts on the host's clock: the last one ends when the host's wait ends.
void TrainingRun::settle_parts() {
  if (parts_.empty()) return;
  const Event& last = parts_.back().end;
  last.synchronize();
  const std::int64_t now = trace::now_ns();
  const auto at = [&](const Event& event) {
    return now - static_cast<std::int64_t>(kNsPerSecond * seconds_between(event, last));
  };
  for (const Part& part : parts_)
    trace::record(part.name, part.category, at(part.begin), at(part.end));
  parts_.clear();
}

void TrainingRun::fetched() {
  end_part("batch", Category::data);
  ++batches_;
  ++all_batches_;
  begin_part();
}

void TrainingRun::forward_done(const Tensor& loss, bool last) {
  end_part("forward", Category::compute);
  if (loss.device().is_cuda()) {
    require(loss.numel() == 1 && loss.dtype() == DType::f32, "a loss must be one number of f32");
    fetched_losses_.emplace_back(data_of(loss), loss.device(), Bytes(sizeof(float)));
  } else {
    step_loss_ += loss.item<float>();
    if (last) losses_.begin(step_loss_, wish());
  }
  begin_part();
}

void TrainingRun::backward_done(bool last) {
  end_part("backward", Category::compute);
  if (last) {
    if (!fetched_losses_.empty()) {
      for (const Fetch& loss : fetched_losses_) {
        float value = 0;
        std::memcpy(&value, loss.wait(), sizeof value);
        step_loss_ += value;
      }
      fetched_losses_.clear();
      losses_.begin(step_loss_, wish());
    }
    last_loss_ = losses_.finish(step_);
    checkpoints_.prove();
    if (losses_.wish() == LossExchange::Wish::stop) checkpoints_.stop(step_ - 1);
    if (step_ == 1) first_loss_ = last_loss_;
  }
  begin_part();
}

LossExchange::Wish TrainingRun::wish() const {
  if (checkpoints_.failed()) return LossExchange::Wish::stop;
  return stop_request_ && stop_request_->here() ? LossExchange::Wish::preempt
                                                : LossExchange::Wish::none;
}

void TrainingRun::step_done(bool made, double lr, double scale) {
  if (made) ++updates_;
  end_part("optimizer", Category::optim);
  settle_parts();
  if (profile::enabled()) profile::settle();
  profile::enable(false);
  const StepTime time = clock_.end(step_);
  recent_[static_cast<std::size_t>(step_ % kRecent)] = time;
  const std::int64_t now = trace::now_ns();
  if (group_.rank() == 0) record_step(time, lr, scale, now);
  end_ns_ = now;
  if (options_.eval_every > 0 && step_ % options_.eval_every == 0) (void)evaluate();
  const bool stops = losses_.wish() == LossExchange::Wish::preempt && step_ < plan_.steps;
  if (stops || checkpoints_.due(step_) ||
      (options_.check_drift > 0 && step_ % options_.check_drift == 0))
    compare_parameters();
  checkpoints_.step_done({step_, first_loss_, last_loss_, step_ - updates_}, stops);
  if (stops) stop_here();
}

void TrainingRun::stop_here() {
  checkpoints_.finish(step_);
  progress_.clear();
  say(how_to_continue(step_, plan_.steps, folder_));
  throw QuietStop(ExitCode::preempted);
}

void TrainingRun::compare_parameters() {
  together(group_, [&] { check_drift(group_, model_->named_parameters()); });
}

// A full disk must not end the training: it continues up to the model, and fails only then.
void TrainingRun::note(const nlohmann::ordered_json& line) {
  if (!lost_lines_.empty()) return;
  try {
    metrics_->write(line);
  } catch (const Error& e) {
    lost_lines_ = fmt::format("{}; the lines from step {} on are missing", e.what(), step_);
    say("warning: " + lost_lines_);
  }
}

void TrainingRun::record_step(const StepTime& time, double lr, double scale, std::int64_t now) {
  const auto ms = [](std::int64_t ns) { return static_cast<double>(ns) / kNsPerMs; };
  const double units = plan_.units_per_batch * static_cast<double>(batches_);
  const double rate = units * kNsPerSecond / static_cast<double>(now - end_ns_);
  nlohmann::ordered_json line = {{"step", step_},
                                 {"loss", last_loss_},
                                 {"lr", lr},
                                 {std::string(plan_.unit) + "_per_s", rate},
                                 {"step_ms", ms(time.step)}};
  if (options_.amp == "f16") line["scale"] = scale;
  if (clock_.tracing()) {
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

  // Means over the last steps, so that the progress line is steady enough to read.
  StepTime sum;
  for (const StepTime& t : recent_) sum += t;                   // entries without a step yet are 0
  const auto steps = static_cast<double>(step_ - resumed_at_);  // of this process
  const auto n = std::min(steps, static_cast<double>(kRecent));
  const double step_seconds = static_cast<double>(sum.step) / n / kNsPerSecond;
  const auto held_out = evaluated_ ? std::optional(evaluated_->loss) : std::nullopt;
  progress_.update({step_, plan_.steps, last_loss_, units / step_seconds, plan_.unit,
                    ms(sum.comm) / n, ms(sum.exposed) / n,
                    static_cast<double>(plan_.steps - step_) *
                        static_cast<double>(now - begin_ns_) / kNsPerSecond / steps,
                    held_out});
  if (step_ == plan_.steps) progress_.clear();
}

namespace {

// The parts of a step's time, which add up to it. The hidden part of communication is inside
// forward and backward.
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

// The contents of run.json, without the data for the figures by step.
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
  clock_.keep_rest();
  const OperationProfile operations{.on_device = plan_.device.is_cuda(),
                                    .steps = clock_.steps(),
                                    .step_ns = clock_.total().step,
                                    .rows = profile::take_rows()};
  const Report report = make_report(group_, clock_, plan_.device);
  together(group_, [&] {
    if (group_.rank() == 0) save_model(folder_, outcome.model, outcome.metadata);
    if (!lost_lines_.empty()) throw Error(lost_lines_ + "; the trained model was saved");
  });
  checkpoints_.finish(step_);
  if (clock_.tracing()) write_trace(group_, clock_, folder_ + "/trace.json");
  const double seconds = static_cast<double>(end_ns_ - begin_ns_) / kNsPerSecond;
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
      resumed_at_ > 0 ? fmt::format(" after the first {}", resumed_at_) : "",
      format_duration(seconds), first_loss_, last_loss_, format_count(rate), plan_.unit,
      group_.size(), group_.size() == 1 ? "" : "s", outcome.headline);
  if (step_ > updates_)
    text += fmt::format("skipped: {} of {} steps, whose gradients were infinite or NaN\n\n",
                        step_ - updates_, step_);
  if (clock_.tracing()) text += time_table(report) + "\n";
  if (options_.profile) text += operation_table(operations) + "\n";
  text += memory_line(report);
  text += fmt::format("files in {}:\n  metrics.jsonl, model.safetensors{}{}", folder_,
                      options_.report ? ", report.html" : "",
                      clock_.tracing() ? ", trace.json (open it in ui.perfetto.dev)" : "");
  say(text);

  if (options_.json) {
    nlohmann::ordered_json out = {
        {"ranks", group_.size()},  {"steps", report.steps},
        {"seconds", seconds},      {"first_loss", first_loss_},
        {"last_loss", last_loss_}, {std::string(plan_.unit) + "_per_s", rate}};
    if (resumed_at_ > 0) out["resumed_at"] = resumed_at_;
    if (step_ > updates_) out["skipped_steps"] = step_ - updates_;
    for (const auto& [name, value] : outcome.figures) out[name] = value;
    out.update(to_json(report));
    out["run_dir"] = folder_;
    if (options_.profile) out["operations"] = to_json(operations);
    fmt::print("{}\n", out.dump());
    std::fflush(stdout);
  }
}

}  // namespace ringsmith::apps
