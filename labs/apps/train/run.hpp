// Everything around a training loop: its clock, progress, files, checkpoints, the final report. The
// program itself runs the loop and reports the end of each part of a step:
//
//   begin_step()  fetched()    forward_done()        backward_done() losses_done()  step_done()
//        |---data----|----forward----|---------backward--------|         |----optimizer----|
//                                    | the ranks exchange their losses ..^
//
// In a step of several micro-steps (accumulate.hpp) each micro-step has the first three parts, and
// the step's loss is the sum of theirs.
//
// The exchange is the program's own (LossExchange in agreement.hpp): a collective that overlaps
// with the last backward, next to DDP's. A GPU runs asynchronously. The host waits for it once per
// step, for the loss, when backward has been queued; while spans are recorded (no --no-trace) also
// at the end of the step (run_clock.hpp).
#pragma once

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
#include "labs/apps/train/run_clock.hpp"
#include "labs/apps/train/run_files.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/parallel/stop_request.hpp"

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
  // Collective; call once, before start(). Continues after the step of the checkpoint, if there is
  // one (RunCheckpoints).
  void resume(const Trained& trained);
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
  // False after the last step.
  [[nodiscard]] bool begin_step();
  void fetched();
  void forward_done();
  void backward_done();
  [[nodiscard]] std::int64_t step() const { return reached_.step; }  // the current one, from 1
  // For LossExchange: this rank's request to the others.
  [[nodiscard]] LossExchange::Wish wish() const;
  // The results of the exchange. Throws on all ranks if one could not write a checkpoint.
  void losses_done(double mean, LossExchange::Wish strongest);
  // made: the result of GradScaler::step(). scale: its value after the update. When due, compares
  // the ranks' parameters and takes a checkpoint; replicas that have drifted apart end the run, and
  // no saved checkpoint is replaced. If a rank was asked to stop (StopRequest) during the step, and
  // it is not the last, all ranks save, rank 0 prints a message, and all throw QuietStop.
  void step_done(bool made, double lr, double scale);
  // Steps that were made: the position in a learning-rate schedule, unchanged by a skipped step.
  [[nodiscard]] std::int64_t updates() const { return reached_.step - reached_.skipped; }

  // Collective. Compares the ranks' parameters; writes model.safetensors, run.json, trace.json
  // (unless --no-trace) and, with --report, report.html; prints the headline, the tables and the
  // files' names.
  void finish(const Outcome& outcome);

 private:
  void compare_parameters();  // collective; if they differ, one rank reports it and all stop
  void stop_here();
  void note(const nlohmann::ordered_json& line);
  void record_step(const StepTime& time, double lr, double scale);

  comm::ProcessGroup& group_;
  const TrainOptions& options_;
  RunPlan plan_;
  const Module* model_ = nullptr;
  std::string folder_;
  RunClock clock_;
  std::optional<StopRequest> stop_request_;  // only if the run can save
  RunCheckpoints checkpoints_;
  Progress progress_;
  Reached reached_;  // with the current step, which counts as skipped until its update is made
  bool preempted_ = false;                      // a rank was asked to stop
  std::int64_t batches_ = 0, all_batches_ = 0;  // in this step, in all steps
  struct {
    std::unique_ptr<JsonLines> lines;  // on rank 0
    std::string lost;                  // why no more lines are written; empty: they are
  } metrics_;
  struct {
    std::function<Evaluation()> run;
    std::optional<Evaluation> last;
    std::int64_t last_step = -1;
  } evaluation_;
};

}  // namespace ringsmith::apps
