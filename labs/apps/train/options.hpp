#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "labs/apps/common/job.hpp"
#include "runtime/amp/grad_scaler.hpp"
#include "runtime/autograd/autocast.hpp"
#include "runtime/parallel/ddp.hpp"

namespace ringsmith::apps {

struct MachineOptions : JobOptions {
  std::string device = "cpu";  // cpu, cuda (one per local rank) or cuda:NUMBER
  int threads = 1;
  std::string kernels = "fast";
  std::string products = "own";
  std::string bf16_products = "auto";
  std::string float32 = "strict";
  double bucket_cap_mb = kBucketMb;
  bool stage_through_host = false;
  std::string overlap = "auto";
  std::string algorithm = "automatic";
  std::string schedule;  // custom all-reduce; empty: none
  std::string comm_hook = "none";
  int powersgd_rank = 1;
  std::int64_t powersgd_start = 10;
};

struct TrainOptions : MachineOptions {
  std::string data;               // a file; empty: the program's default data
  std::int64_t steps = 0;         // optimizer steps; 0: by epochs, or the default
  double epochs = 0;              // passes over the training data; 0: by steps
  std::int64_t batch = 0;         // samples in a batch of one rank
  std::int64_t global_batch = 0;  // samples per step of all ranks; 0: batch * world * accumulate
  std::int64_t accumulate = 1;    // batches per rank and step
  double lr = 0;
  std::string amp = "off";
  std::string ddp = "buckets";
  std::uint64_t seed = 0;
  bool heeds_signals = true;    // handle SIGTERM, SIGUSR1; false if ranks are threads
  std::string run_dir;          // empty: runs/<stamp>; also the default of flight_dir
  std::int64_t save_every = 0;  // steps between checkpoints; 0: none
  int keep = 3;
  std::string resume;     // a checkpoint's folder, "auto", or empty
  bool per_step = false;  // a lost rank ends the step, not the job
  bool no_trace = false;
  std::int64_t eval_every = 0;  // steps between evaluations on held-out data; 0: only at the end
  bool profile = false;
  bool report = false;
  bool json = false;
  std::int64_t check_drift = 0;  // steps between comparisons; 0: before saves and at the end
  bool ddp_logging = false;
  std::string progress = "auto";
};

// The values in o are the defaults. default_length describes the run's length without --steps and
// --epochs.
void add_train_options(CommandLine& app, TrainOptions& o, const std::string& default_length);
// Adds only the groups Machine and Communication, and the footer. flight_dir: describes the default
// of --flight-dir.
void add_machine_options(CommandLine& app, MachineOptions& o,
                         const std::string& flight_dir = "none");

// Configures the kernels and their threads. Throws UsageError if the device does not exist or
// --schedule and --algorithm contradict each other.
[[nodiscard]] comm::GroupOptions group_of(const MachineOptions& o);
[[nodiscard]] std::shared_ptr<comm::ProcessGroup> start(const MachineOptions& o);

[[nodiscard]] DdpOptions ddp_options(const MachineOptions& o);
// Throws UsageError if --ddp plain is combined with an option about buckets, overlap or hooks.
void check_ddp(const TrainOptions& o);
void register_comm_hook(const MachineOptions& o, DistributedDataParallel& ddp,
                        const std::shared_ptr<comm::ProcessGroup>& group);

// For --amp: return the guard for forward and loss, and the scaler, which is enabled for f16.
[[nodiscard]] Autocast autocast_of(const TrainOptions& o);
[[nodiscard]] GradScaler scaler_of(const TrainOptions& o);

// Returns the batch size of one rank: from --global-batch if given (UsageError unless it is
// divisible by the ranks and their batches per step), else --batch.
[[nodiscard]] std::int64_t batch_per_rank(const TrainOptions& o, int world);

// Returns the number of steps that --steps or --epochs requests, or default_steps without either.
[[nodiscard]] std::int64_t steps_of(const TrainOptions& o, std::int64_t batches_per_epoch,
                                    std::int64_t default_steps);

}  // namespace ringsmith::apps
