#include "labs/apps/train/options.hpp"

#include <cmath>
#include <cstdlib>
#include <fmt/format.h>

#include "kernels/cpu/gemm.hpp"
#include "kernels/mode.hpp"
#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"
#include "labs/apps/schedule/calibration.hpp"
#include "labs/apps/schedule/own_schedule.hpp"
#include "runtime/base/error.hpp"
#include "runtime/job/store/coordinator.hpp"
#include "runtime/parallel/agreement.hpp"
#include "runtime/parallel/beyond/power_sgd.hpp"

namespace ringsmith::apps {

namespace {

std::string footer() {
  return how_to_start() + "\nEnvironment:\n" + starting_variables() +
         R"(  RINGSMITH_CUDA_CACHE   off: every tensor on a GPU is a separate cudaMalloc,
                         slow, so that a memory checker sees its bounds
  CUDA_DEVICE_MAX_CONNECTIONS
                         read by the CUDA driver; 32 unless set

Exit codes: 0 done, 1 failed (NaN in the loss, full disk), 2 CUDA failed, 3
communication failed, 4 a deadline passed, 6 wrong options or input, 7 no more
memory, files or threads for this process, 75 saved and stopped.

With --run-dir, --save-every or --resume a run that gets SIGTERM or SIGUSR1
finishes its step on all ranks, saves, and ends with exit code 75. A second
signal ends it immediately. The same command with --resume auto continues it.)";
}

std::string is_a_device(const std::string& name) {
  try {
    (void)parse_device(name);
    return {};
  } catch (const UsageError& e) {
    return e.what();
  }
}

// Settings on which a replica's bits depend, because each rank computes the norm of the gradients
// and the update itself. The instructions used for bf16 products are not among these settings,
// because they affect only the gradients, which are averaged (kernels/cpu/fast/matmul_bf16.hpp).
comm::Settings surroundings_of(const MachineOptions& o) {
  const bool on_cpu = parse_device(o.device).is_cpu();
  comm::Settings out{{"the version of ringsmith", RINGSMITH_VERSION},
                     {"the kind of --device", on_cpu ? "cpu" : "cuda"}};
  const bool fast = on_cpu && kernels::mode() == kernels::Mode::fast;
  if (fast)
    out.emplace_back("the instruction set of --kernels fast (of the build: RINGSMITH_ARCH)",
                     kernels::instruction_set());
  if (!fast || kernels::products() != kernels::Products::openblas) return out;
  std::string library = "not there";
  try {
    library = kernels::cpu::blas_description();
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the first product reports it in full
  }
  out.emplace_back("the library of --products openblas", library);
  return out;
}

}  // namespace

void add_machine_options(CommandLine& app, MachineOptions& o, const std::string& flight_dir) {
  app.group("Options");
  app.footer(footer());
  app.group("Machine");
  app.add_option("--device", o.device,
                 "cpu, cuda or cuda:NUMBER; with cuda the ranks of a host use its GPUs round-robin")
      ->check(is_a_device);
  app.add_option("--threads", o.threads, "threads of each rank's kernels on the CPU")
      ->check(whole(1, 256));
  app.add_option("--kernels", o.kernels, "fast, or oracle: slow, obvious, bit-exact with PyTorch")
      ->check(one_of({"fast", "oracle"}));
  app.add_option("--products", o.products,
                 "matrix products of the fast kernels: ringsmith's own, or OpenBLAS's")
      ->check(one_of({"own", "openblas"}));
  app.add_option(
         "--bf16-products", o.bf16_products,
         "matrix products of --amp bf16 on the CPU: with the processor's instructions for them if "
         "it has any (auto), with those named, or widened: the same bits on every processor")
      ->check(one_of({"auto", "widened", "avx512_bf16", "amx_bf16"}));
  app.add_option("--float32", o.float32,
                 "matrix products on a GPU: strict, or tf32: operands rounded to 11 bits, for "
                 "tensor cores")
      ->check(one_of({"strict", "tf32"}));

  app.group("Communication");
  app.add_option("--bucket-cap-mb", o.bucket_cap_mb, "MiB of gradients in one all-reduce")
      ->check(above_zero(1e6));
  app.add_option(
         "--overlap", o.overlap,
         "reduce full buckets while backward continues; auto: with gradients on a GPU, or if the "
         "machine has a core on which no rank computes; alternate: off in odd steps, on in even "
         "ones")
      ->check(one_of({"auto", "on", "off", "alternate"}));
  app.add_option("--algorithm", o.algorithm,
                 "order of the all-reduce sums; fastest: chosen by the cost model for each size "
                 "(all_reduce_perf --algorithm fastest --calibrate measures its constants)")
      ->check(one_of({"automatic", "ring", "gloo_ring", "direct", "tree", "halving_doubling",
                      "double_tree", "hierarchical", "fastest"}));
  app.add_option("--schedule", o.schedule,
                 "your own all-reduce, run in place of the ring: a file with its steps "
                 "(runtime/comm/schedule/own.hpp; lab 13 writes one), or work/06-ring, which make "
                 "own-ring compiles; refused unless it is proved correct")
      ->check(existing_path());
  app.add_option("--comm-hook", o.comm_hook,
                 "how gradients travel: none, or a communication hook: allreduce, fp16 or bf16 "
                 "(half the bytes), powersgd (matrices as two thin factors)")
      ->check(one_of({"none", "allreduce", "fp16", "bf16", "powersgd"}));
  app.add_option("--powersgd-rank", o.powersgd_rank, "columns of each of powersgd's factors")
      ->check(whole(1, 1 << 16));
  app.add_option("--powersgd-start", o.powersgd_start,
                 "steps of plain all-reduce before powersgd compresses")
      ->check(whole(2));
  app.add_option(
         "--timeout", o.timeout,
         "seconds that a rank waits for a peer before it fails; use minutes if a rank may be "
         "late for a good reason, such as a slow file system (PyTorch waits 10 minutes)")
      ->check(seconds());
  app.add_flag("--stage-through-host", o.stage_through_host,
               "with --device cuda: stage gradients through host memory, for GPUs that cannot "
               "reach each other");
  add_meeting_options(app, o);
  add_node_options(app, o, flight_dir);
}

void add_train_options(CommandLine& app, TrainOptions& o, const std::string& default_length) {
  app.group("Training");
  auto* steps = app.add_option("--steps", o.steps, "optimizer steps [" + default_length + "]")
                    ->default_text("")
                    ->check(whole(1));
  app.add_option("--epochs", o.epochs, "passes over the training data (instead of --steps)")
      ->default_text("")
      ->check(above_zero(1e9))
      ->excludes(steps);
  app.add_option("--batch", o.batch,
                 "samples in a batch of each rank; a step has one batch, or --accumulate of them")
      ->check(whole(1));
  app.add_option("--accumulate", o.accumulate,
                 "batches in a step of each rank: their gradients are averaged, and reduced once; "
                 "the last step of an epoch has the rest")
      ->check(whole(1, 1 << 20));
  app.add_option("--global-batch", o.global_batch,
                 "samples in a step of all ranks together, instead of --batch; the same value "
                 "gives the same training on any number of ranks (0: --batch times ranks, times "
                 "--accumulate)")
      ->check(whole(0));
  app.add_option("--lr", o.lr, "learning rate (its peak, where there is a schedule)")
      ->check(above_zero(1e30));
  app.add_option("--amp", o.amp,
                 "mixed precision: forward and backward compute in bf16 or f16 where that is safe; "
                 "parameters, losses and the optimizer stay f32; f16 scales the loss")
      ->check(one_of({"off", "bf16", "f16"}));
  app.add_option("--eval-every", o.eval_every,
                 "evaluate on the held-out data every this many steps, on all ranks, each sample "
                 "once; does not change a bit of the training; 0: only at the end")
      ->check(whole(0));
  app.add_option("--seed", o.seed, "seed of parameters, sample order and dropout");

  add_machine_options(app, o, "the run's folder, where a rank sees it");
  app.group("Communication");
  app.add_option(
         "--ddp", o.ddp,
         "how gradients are averaged; buckets: many in one all-reduce, while backward "
         "continues; plain: each by itself, after backward (runtime/parallel/plain_ddp.hpp)")
      ->check(one_of({"buckets", "plain"}));
  app.group("Checkpoints");
  app.add_flag("--per-step", o.per_step,
               "continue, within the step, without lost ranks, and admit ranks that are restarted; "
               "under ringrun --per-step");
  app.add_option(
         "--save-every", o.save_every,
         "write a checkpoint of all that is needed to continue the run every this many steps, and "
         "after the last one, to checkpoints/step-NUMBER in the run's folder; 0: none")
      ->check(whole(0));
  app.add_option("--keep", o.keep, "number of newest checkpoints to keep")->check(whole(1));
  app.add_option("--resume", o.resume,
                 "continue from a checkpoint. A folder, e.g. runs/x/checkpoints/step-000200: in a "
                 "new run's folder. auto: in --run-dir, from the newest complete checkpoint there, "
                 "or from the start if there is none. With the same options, programs, ranks and "
                 "kind of machine as before, bit for bit as if it had never stopped")
      ->default_text("");
  app.group("Output");
  app.add_option("--run-dir", o.run_dir,
                 "folder for metrics.jsonl, trace.json and model.safetensors; new or empty "
                 "[runs/<stamp>]")
      ->default_text("");
  app.add_flag("--no-trace", o.no_trace,
               "record no spans: no trace.json, and no communication times; no wait for the GPU at "
               "the end of each phase");
  app.add_option("--progress", o.progress,
                 "bar (one line redrawn), lines (one every 5 s), off; auto: bar on a terminal")
      ->check(one_of({"auto", "bar", "lines", "off"}));
  app.add_flag("--profile", o.profile,
               "print the operations of a step: calls, time, FLOP/s, bytes/s, share; trace.json "
               "has them as spans, too. GPU kernels take a few microseconds longer");
  app.add_flag(
      "--report", o.report,
      "write report.html too: loss, throughput, time by phase, a step's overlap, memory "
      "and operations in one page (implies --profile; train_report FOLDER makes it from any run)");
  app.add_option("--check-drift", o.check_drift,
                 "compare the ranks' parameters, bit for bit, every this many steps, and always "
                 "before each checkpoint and at the end; 0: only then")
      ->check(whole(0));
  app.add_flag(
      "--ddp-logging", o.ddp_logging,
      "print DistributedDataParallel's logging data: buckets, order of the gradients, times");
  app.add_flag("--json", o.json, "the closing report as one JSON object on standard output");
  // Hidden; the error names the program that measures steps.
  app.refuse("--bench", "--bench: unknown option; train_bench measures steps");
}

comm::GroupOptions group_of(const MachineOptions& o) {
  kernels::set_mode(kernels::parse_mode(o.kernels));
  kernels::set_products(kernels::parse_products(o.products));
  if (o.bf16_products != "auto")  // the first use requests tiles from Linux
    kernels::set_bf16_products(kernels::parse_bf16_products(o.bf16_products));
  kernels::set_float32(kernels::parse_float32(o.float32));
  kernels::set_threads(o.threads);
  comm::GroupOptions options = group_options(o);
  const comm::Settings surroundings = surroundings_of(o);
  options.settings.insert(options.settings.end(), surroundings.begin(), surroundings.end());
  require(o.schedule.empty() || o.algorithm == "automatic" || o.algorithm == "ring",
          "--schedule takes the place of the ring: leave out --algorithm " + o.algorithm);
  options.algorithm = o.algorithm == "fastest" || !o.schedule.empty()
                          ? comm::Algorithm::ring
                          : comm::parse_algorithm(o.algorithm);
  if (!o.stage_through_host) options.device = device_of_rank(o.device);
  return options;
}

std::shared_ptr<comm::ProcessGroup> start(const MachineOptions& o) {
  require(std::getenv(comm::store::kPerStepVariable) == nullptr,
          "ringrun has --per-step, but this program does not: give it to both or to neither");
  auto group = comm::init_process_group(group_of(o));
  if (o.algorithm == "fastest") choose_fastest(*group);
  std::string steps;
  if (!o.schedule.empty())
    together(*group, [&] { steps = use_schedule_of(o.schedule, group->size()); });
  require_agreement(*group, {{"the text of --schedule", steps}});
  return group;
}

DdpOptions ddp_options(const MachineOptions& o) {
  DdpOptions out;
  out.bucket_cap_mb = o.bucket_cap_mb;
  out.overlap = parse_overlap(o.overlap);
  return out;
}

void check_ddp(const TrainOptions& o) {
  const auto refuse = [&](bool given, const std::string& option, const std::string& reason) {
    require(o.ddp != "plain" || !given, "--ddp plain cannot be combined with " + option + ": " +
                                            reason + "; leave out one of the two");
  };
  refuse(o.comm_hook != "none", "--comm-hook " + o.comm_hook, "hooks replace the sums of buckets");
  refuse(o.overlap == "on" || o.overlap == "alternate", "--overlap " + o.overlap,
         "it reduces when backward has ended");
  refuse(o.bucket_cap_mb != MachineOptions().bucket_cap_mb, "--bucket-cap-mb", "it has no buckets");
  refuse(o.ddp_logging, "--ddp-logging", "it has no buckets");
}

void register_comm_hook(const MachineOptions& o, DistributedDataParallel& ddp,
                        const std::shared_ptr<comm::ProcessGroup>& group) {
  if (o.comm_hook == "allreduce") ddp.register_comm_hook(allreduce_hook(group));
  if (o.comm_hook == "fp16") ddp.register_comm_hook(fp16_compress_hook(group));
  if (o.comm_hook == "bf16") ddp.register_comm_hook(bf16_compress_hook(group));
  if (o.comm_hook == "powersgd")
    ddp.register_comm_hook(power_sgd_hook(std::make_shared<PowerSgdState>(
        group, PowerSgdOptions{.matrix_approximation_rank = o.powersgd_rank,
                               .start_powersgd_iter = o.powersgd_start})));
}

Autocast autocast_of(const TrainOptions& o) {
  return o.amp == "off" ? Autocast(DType::bf16, false) : Autocast(parse_dtype(o.amp));
}

GradScaler scaler_of(const TrainOptions& o) { return GradScaler({.enabled = o.amp == "f16"}); }

std::int64_t batch_per_rank(const TrainOptions& o, int world) {
  if (o.global_batch == 0) return o.batch;
  const std::int64_t shares = world * o.accumulate;
  require(o.global_batch % shares == 0,
          fmt::format("--global-batch {} cannot be divided among {} ranks{}; give a multiple of {}",
                      o.global_batch, world,
                      o.accumulate == 1 ? "" : fmt::format(" with --accumulate {}", o.accumulate),
                      shares));
  return o.global_batch / shares;
}

std::int64_t steps_of(const TrainOptions& o, std::int64_t batches_per_epoch,
                      std::int64_t default_steps) {
  if (o.epochs <= 0) return o.steps > 0 ? o.steps : default_steps;
  const double steps = std::ceil(o.epochs * static_cast<double>(batches_per_epoch));
  require(steps < 1e15, fmt::format("--epochs {} is too many", o.epochs));
  return static_cast<std::int64_t>(steps);
}

}  // namespace ringsmith::apps
