// The options that the training programs share, and what follows from them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "labs/apps/common/job.hpp"
#include "runtime/amp/grad_scaler.hpp"
#include "runtime/autograd/autocast.hpp"
#include "runtime/parallel/ddp.hpp"

namespace ringsmith::apps {

// What a rank computes on, and how the ranks talk.
struct MachineOptions : JobOptions {
  std::string device = "cpu";  // cpu, cuda (one for each local rank) or cuda:NUMBER
  int threads = 1;
  std::string kernels = "fast";
  std::string products = "own";
  std::string bf16_products = "auto";
  std::string float32 = "strict";
  double bucket_cap_mb = 25;
  bool stage_through_host = false;
  std::string overlap = "auto";
  std::string algorithm = "automatic";
  std::string schedule;  // where an all-reduce of one's own is; empty: none
  std::string comm_hook = "none";
  int powersgd_rank = 1;
  std::int64_t powersgd_start = 10;
};

struct TrainOptions : MachineOptions {
  std::string data;               // a file; empty: the program's own data
  std::int64_t steps = 0;         // optimizer steps; 0: by epochs, or the program's default
  double epochs = 0;              // passes over the training data; 0: by steps
  std::int64_t batch = 0;         // samples of each rank's batch
  std::int64_t global_batch = 0;  // samples of all ranks in a step; 0: batch * world * accumulate
  std::int64_t accumulate = 1;    // batches of each rank in a step
  double lr = 0;
  std::string amp = "off";
  std::uint64_t seed = 0;
  bool heeds_signals = true;    // SIGTERM, SIGUSR1: false where ranks are threads of a process
  std::string run_dir;          // empty: runs/<stamp>; flight_dir, if empty, is there too
  std::int64_t save_every = 0;  // steps between checkpoints; 0: none
  int keep = 3;                 // checkpoints
  std::string resume;           // a checkpoint's folder, "auto", or empty
  bool per_step = false;        // a lost rank ends the step, not the job
  bool no_trace = false;
  std::int64_t eval_every = 0;  // steps between evaluations on held-out data; 0: only at the end
  bool profile = false;
  bool report = false;
  bool json = false;
  std::int64_t check_drift = 0;  // steps between comparisons; 0: only before a save
  bool ddp_logging = false;
  std::string progress = "auto";
};

// Adds the shared options to the program's own; the values in o are the defaults, default_length is
// what --steps and --epochs are when neither is given, in words.
void add_train_options(CommandLine& app, TrainOptions& o, const std::string& default_length);
// Of these the groups Machine and Communication, for a program without a run's folder, and the
// footer. flight_dir: where the files of --flight-dir go without it, in words.
void add_machine_options(CommandLine& app, MachineOptions& o,
                         const std::string& flight_dir = "none");

// Switches the kernels and their threads; the options of the process group. UsageError if there is
// no such device.
[[nodiscard]] comm::GroupOptions group_of(const MachineOptions& o);
// group_of(), and starts the group.
[[nodiscard]] std::shared_ptr<comm::ProcessGroup> start(const MachineOptions& o);

[[nodiscard]] DdpOptions ddp_options(const MachineOptions& o);
// Registers what --comm-hook names.
void register_comm_hook(const MachineOptions& o, DistributedDataParallel& ddp,
                        const std::shared_ptr<comm::ProcessGroup>& group);

// Of --amp: the guard for forward and loss, and the scaler, which is enabled for f16.
[[nodiscard]] Autocast autocast_of(const TrainOptions& o);
[[nodiscard]] GradScaler scaler_of(const TrainOptions& o);

// Samples of one rank's batch: from --global-batch if given (UsageError unless ranks and batches of
// a step divide it), else --batch.
[[nodiscard]] std::int64_t batch_per_rank(const TrainOptions& o, int world);

// Steps of the run, from --steps or --epochs; default_steps without either.
[[nodiscard]] std::int64_t steps_of(const TrainOptions& o, std::int64_t batches_per_epoch,
                                    std::int64_t default_steps);

}  // namespace ringsmith::apps
