// What goes on around a training loop: its clock, the loss of all ranks, progress, files, the
// report at the end. The loop is the program's own, and says where each part of its step ends:
//
//   begin_step()  fetched()    forward_done()          backward_done()   step_done()
//        |---data----|----forward----|---------backward--------|----optim----|
//                               loss ^ ............... checked ^   the ranks' losses travel
//
// A step of several micro-steps (accumulate.hpp) has the first three parts once for each, and its
// loss is their sum.
//
// A GPU works behind the host, which waits for it once in a step, for the loss, when backward is
// queued; while spans are recorded (no --no-trace) also at the step's end, where events tell when
// each part began and ended.
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
  const char* unit = "samples";  // of throughput
  double units_per_batch = 0;    // of all ranks' batches together
  Device device;                 // of the model
};

// What the run has reached.
struct Outcome {
  std::string headline;                                 // "validation loss 1.93 nats/byte"
  std::vector<std::pair<std::string, double>> figures;  // the same for --json
  StateDict model;
  Metadata metadata;
};

class TrainingRun {
 public:
  // Spans are recorded from here on.
  TrainingRun(comm::ProcessGroup& group, const TrainOptions& options);

  // Collective: if rank 0 cannot make the folder, all ranks stop, and rank 0 says why.
  void open_folder();
  // Collective, once, before start(): the number of steps that a checkpoint has brought; 0 without
  // one. See RunCheckpoints.
  [[nodiscard]] std::int64_t resume(const Trained& trained);
  [[nodiscard]] const std::string& folder() const { return folder_; }  // on rank 0

  // Text for people, from rank 0: on standard output, or with --json, which has that to itself, on
  // standard error.
  void say(const std::string& text) const;

  // What --eval-every runs, and evaluate(): collective, and training must not notice it.
  void evaluate_with(std::function<Evaluation()> evaluation);
  // Collective. Of the model as it is; the time counts for no step. After the last step, throws
  // unless the model is worth writing: its loss, its state and the optimizer's are finite, and not
  // too many of the run's steps were skipped (require_updates, evaluate.hpp).
  [[nodiscard]] Evaluation evaluate();

  void start(const RunPlan& plan);  // the clock of the first step
  void begin_step();
  void fetched();
  // last: of the step's micro-steps. Then the exchange of the losses starts, and ends, or throws as
  // LossExchange::finish.
  void forward_done(const Tensor& loss, bool last = true);
  void backward_done(bool last = true);
  // made: the result of GradScaler::step(). scale: after its update. If it is time, compares the
  // ranks' parameters, and takes a checkpoint: replicas that have drifted apart end the run, and
  // replace nothing that was saved. If a rank was asked to stop (StopRequest) during the step, all
  // save, rank 0 says so, and all throw QuietStop.
  void step_done(bool made, double lr, double scale);
  // Steps that were made: where a schedule of the learning rate is. A skipped one does not move it.
  [[nodiscard]] std::int64_t updates() const { return updates_; }

  // Collective. Compares the ranks' parameters; writes model.safetensors, trace.json, run.json and
  // report.html, prints headline, tables and files.
  void finish(const Outcome& outcome);

 private:
  void begin_part();
  void end_part(const char* name, trace::Category category);
  void settle_parts();
  void compare_parameters();  // collective; if they differ, one rank says why and all stop
  [[nodiscard]] LossExchange::Wish wish() const;
  void stop_here();
  void note(const nlohmann::ordered_json& line);
  void record_step(const StepTime& time, double lr, double scale, std::int64_t now);

  comm::ProcessGroup& group_;
  const TrainOptions& options_;
  StepClock clock_;
  std::optional<StopRequest> stop_request_;  // if there is where to save
  LossExchange losses_;
  RunCheckpoints checkpoints_;
  Progress progress_;
  const Module* model_ = nullptr;
  std::string folder_;
  std::unique_ptr<JsonLines> metrics_;  // on rank 0
  std::string lost_lines_;              // why its file has no more of them
  RunPlan plan_;
  std::int64_t step_ = 0, updates_ = 0;
  std::function<Evaluation()> evaluation_;
  std::optional<Evaluation> evaluated_;         // the last one
  std::int64_t evaluated_at_ = -1;              // after so many steps
  std::int64_t resumed_at_ = 0;                 // steps of earlier processes
  std::int64_t batches_ = 0, all_batches_ = 0;  // of this step, of all
  double step_loss_ = 0;                        // of this rank
  double first_loss_ = 0, last_loss_ = 0;       // means over the ranks
  // Nanoseconds: when training began, the last step ended, the current part began.
  std::int64_t begin_ns_ = 0, end_ns_ = 0, part_ns_ = 0;
  // On a device the host does not wait for the parts of a step, nor for its losses: events mark the
  // parts, and the losses are read when backward is queued.
  struct Part {
    const char* name;
    trace::Category category;
    Event begin, end;
  };
  Event part_event_;
  std::vector<Part> parts_;
  std::vector<Fetch> fetched_losses_;
  static constexpr std::int64_t kRecent = 20;  // steps whose mean the progress line shows
  std::array<StepTime, kRecent> recent_;
};

}  // namespace ringsmith::apps
