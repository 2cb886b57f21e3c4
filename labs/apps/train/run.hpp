// Everything around a training loop: clock, progress, files, checkpoints, the final report. The
// program runs the loop and reports the end of each part of a step:
//
//   begin_step()  fetched()    forward_done()        backward_done() losses_done()  step_done()
//        |---data----|----forward----|---------backward--------|         |----optimizer----|
//                                    | the ranks exchange their losses ..^
//
// In a step of several micro-steps (accumulate.hpp), each micro-step has the first three parts.
//
// The exchange is a separate collective (LossExchange) that overlaps with the last backward. The
// host waits for a GPU once per step: for the loss, after backward has been queued. While spans are
// recorded, it also waits at the end of the step (run_clock.hpp).
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

struct Outcome {
  std::string headline;                                 // "validation loss 1.93 nats/byte"
  std::vector<std::pair<std::string, double>> figures;  // the same for --json
  StateDict model;
  Metadata metadata;
};

class TrainingRun {
 public:
  TrainingRun(comm::ProcessGroup& group, const TrainOptions& options);

  // Collective. If rank 0 cannot create the folder, all ranks stop.
  void open_folder();
  // Collective; call once, before start(). Continues from the checkpoint, if there is one
  // (RunCheckpoints).
  void resume(const Trained& trained);
  [[nodiscard]] const std::string& folder() const { return folder_; }  // on rank 0

  // Prints on rank 0, to standard output, or to standard error with --json.
  void say(const std::string& text) const;

  // Sets the function that --eval-every and evaluate() call. The function is collective, and must
  // not affect training.
  void evaluate_with(std::function<Evaluation()> evaluation);
  // Collective. Evaluates the current model; the time is not part of any step. After the last step,
  // throws if the loss, the model or the optimizer's state is not finite, or if too many steps were
  // skipped (require_updates, evaluate.hpp).
  [[nodiscard]] Evaluation evaluate();

  void start(const RunPlan& plan);
  [[nodiscard]] bool begin_step();
  void fetched();
  void forward_done();
  void backward_done();
  [[nodiscard]] std::int64_t step() const { return reached_.step; }  // the current one, from 1
  [[nodiscard]] LossExchange::Wish wish() const;
  // Throws on all ranks if any rank could not write a checkpoint.
  void losses_done(double mean, LossExchange::Wish strongest);
  // made: the result of GradScaler::step(). scale: its value after the update. If a comparison of
  // the ranks' parameters is due, step_done() makes it before taking a checkpoint, and throws if
  // replicas have drifted apart. If a rank was asked to stop (StopRequest) before the last step,
  // all ranks save and throw QuietStop.
  void step_done(bool made, double lr, double scale);
  // Steps that were not skipped: the position in a learning-rate schedule.
  [[nodiscard]] std::int64_t updates() const { return reached_.step - reached_.skipped; }

  // Collective. Compares the ranks' parameters, writes model.safetensors, run.json, trace.json
  // (unless --no-trace) and, with --report, report.html, and prints the results.
  void finish(const Outcome& outcome);

 private:
  void compare_parameters();
  void stop_here();
  void note(const nlohmann::ordered_json& line);
  void record_step(const StepTime& time, double lr, double scale);

  comm::ProcessGroup& group_;
  const TrainOptions& options_;
  RunPlan plan_;
  const Module* model_ = nullptr;
  comm::ProcessGroup* replicas_ = &group_;  // the ranks whose parameters are equal
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
    std::string lost;                  // why no more lines are written, or empty
  } metrics_;
  struct {
    std::function<Evaluation()> run;
    std::optional<Evaluation> last;
    std::int64_t last_step = -1;
  } evaluation_;
};

}  // namespace ringsmith::apps
