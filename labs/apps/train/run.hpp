// Everything around a training loop: its clock, the loss of all ranks, progress, files, the final
// report. The program itself runs the loop and reports the end of each part of a step:
//
//   begin_step()  fetched()    forward_done()          backward_done()   step_done()
//        |---data----|----forward----|---------backward--------|----optim----|
//                               loss ^ ............... checked ^   exchange of the ranks' losses
//
// In a step of several micro-steps (accumulate.hpp) each micro-step has the first three parts, and
// the step's loss is the sum of theirs.
//
// A GPU runs asynchronously. The host waits for it once per step, for the loss, when backward has
// been queued; while spans are recorded (no --no-trace) also at the end of the step, where events
// tell when each part began and ended.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/train/evaluate.hpp"
#include "labs/apps/train/options.hpp"
#include "labs/apps/train/progress.hpp"
#include "labs/apps/train/run_checkpoints.hpp"
#include "labs/apps/train/run_files.hpp"
#include "labs/apps/train/step_time.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/device/stream.hpp"
#include "runtime/device/transfer.hpp"
#include "runtime/parallel/stop_request.hpp"
#include "runtime/tensor/tensor.hpp"

namespace ringsmith::apps {

struct RunPlan {
  std::int64_t steps = 0;
  const char* unit = "samples";  // for the throughput
  double units_per_batch = 0;    // summed over the ranks' batches
  Device device;                 // of the model
};

// The result of the run.
struct Outcome {
  std::string headline;                                 // "validation loss 1.93 nats/byte"
  std::vector<std::pair<std::string, double>> figures;  // the same for --json
  StateDict model;
  Metadata metadata;
};

class TrainingRun {
 public:
  // Starts recording spans.
  TrainingRun(comm::ProcessGroup& group, const TrainOptions& options);

  // Collective. If rank 0 cannot create the folder, all ranks stop and rank 0 reports the reason.
  void open_folder();
  // Collective; call once, before start(). Returns the number of steps restored from a checkpoint,
  // 0 without one. See RunCheckpoints.
  [[nodiscard]] std::int64_t resume(const Trained& trained);
  [[nodiscard]] const std::string& folder() const { return folder_; }  // on rank 0

  // Prints text on rank 0: on standard output, or on standard error with --json, which reserves
  // standard output for the report.
  void say(const std::string& text) const;

  // Sets the function that --eval-every and evaluate() run: collective, without effect on training.
  void evaluate_with(std::function<Evaluation()> evaluation);
  // Collective. Evaluates the current model; the time is not part of any step. After the last step,
  // throws unless the model is worth writing: its loss, its state and the optimizer's state are
  // finite, and not too many of the run's steps were skipped (require_updates, evaluate.hpp).
  [[nodiscard]] Evaluation evaluate();

  void start(const RunPlan& plan);  // starts the clock of the first step
  void begin_step();
  void fetched();
  // last: true for the step's last micro-step. Then the exchange of the losses starts, which
  // backward_done() completes; that may throw like LossExchange::finish().
  void forward_done(const Tensor& loss, bool last = true);
  void backward_done(bool last = true);
  // made: the result of GradScaler::step(). scale: its value after the update. When due, compares
  // the ranks' parameters and takes a checkpoint; replicas that have drifted apart end the run, and
  // no saved checkpoint is replaced. If a rank was asked to stop (StopRequest) during the step, and
  // it is not the last, all ranks save, rank 0 prints a message, and all throw QuietStop.
  void step_done(bool made, double lr, double scale);
  // Steps that were made: the position in a learning-rate schedule, unchanged by a skipped step.
  [[nodiscard]] std::int64_t updates() const { return updates_; }

  // Collective. Compares the ranks' parameters; writes model.safetensors, run.json, trace.json
  // (unless --no-trace) and, with --report, report.html; prints the headline, the tables and the
  // files' names.
  void finish(const Outcome& outcome);

 private:
  void begin_part();
  void end_part(const char* name, trace::Category category);
  void settle_parts();
  void compare_parameters();  // collective; if they differ, one rank reports it and all stop
  [[nodiscard]] LossExchange::Wish wish() const;
  void stop_here();
  void note(const nlohmann::ordered_json& line);
  void record_step(const StepTime& time, double lr, double scale, std::int64_t now);

  comm::ProcessGroup& group_;
  const TrainOptions& options_;
  StepClock clock_;
  std::optional<StopRequest> stop_request_;  // only if the run can save
  LossExchange losses_;
  RunCheckpoints checkpoints_;
  Progress progress_;
  const Module* model_ = nullptr;
  std::string folder_;
  std::unique_ptr<JsonLines> metrics_;  // on rank 0
  std::string lost_lines_;              // why metrics_ has stopped; empty: it has not
  RunPlan plan_;
  std::int64_t step_ = 0, updates_ = 0;
  std::function<Evaluation()> evaluation_;
  std::optional<Evaluation> evaluated_;         // the last evaluation
  std::int64_t evaluated_at_ = -1;              // step of the last evaluation
  std::int64_t resumed_at_ = 0;                 // steps of earlier processes
  std::int64_t batches_ = 0, all_batches_ = 0;  // in this step, in all steps
  double step_loss_ = 0;                        // of this rank
  double first_loss_ = 0, last_loss_ = 0;       // means over the ranks
  // In nanoseconds: the start of training, the end of the last step, the start of the current part.
  std::int64_t begin_ns_ = 0, end_ns_ = 0, part_ns_ = 0;
  // With a device, the host does not wait for the parts of a step or their losses: events mark the
  // parts, and the losses are read when backward has been queued.
  struct Part {
    const char* name;
    trace::Category category;
    Event begin, end;
  };
  Event part_event_;
  std::vector<Part> parts_;
  std::vector<Fetch> fetched_losses_;
  static constexpr std::int64_t kRecent = 20;  // number of steps in the means of the progress line
  std::array<StepTime, kRecent> recent_;
};

}  // namespace ringsmith::apps
