#include "labs/apps/train/run_checkpoints.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "kernels/mode.hpp"
#include "labs/apps/common/agreement.hpp"
#include "labs/apps/train/evaluate.hpp"
#include "labs/apps/train/run_files.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/process.hpp"
#include "runtime/checkpoint/sha256.hpp"
#include "runtime/parallel/agreement.hpp"
#include "runtime/parallel/broadcast_coalesced.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith::apps {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::milliseconds kLockLook{10};
constexpr const char* kModel = "model";
constexpr const char* kOptimizer = "optimizer";
constexpr const char* kScaler = "scaler";  // if the run has a GradScaler
constexpr const char* kFixed = "fixed ";   // prefixes of option names in Snapshot::values
constexpr const char* kFree = "free ";

// Options that do not affect the numbers of a training run, or whose effect is compared under
// another name: the length of a step and of the run, and the data. A changed value of any other
// option is reported.
constexpr std::array kOfNoNumber{"--activation-checkpointing",
                                 "--batch",
                                 "--check-drift",
                                 "--checksum",
                                 "--ddp-logging",
                                 "--draw",
                                 "--epochs",
                                 "--eval-every",
                                 "--keep",
                                 "--no-trace",
                                 "--per-step",
                                 "--profile",
                                 "--prompt",
                                 "--report",
                                 "--resume",
                                 "--sample",
                                 "--save-every",
                                 "--seed",
                                 "--sockets",
                                 "--stage-through-host",
                                 "--temperature",
                                 "--timeout",
                                 "--transport",
                                 "--validation-windows"};

// ---- texts exchanged between the ranks ----

std::string from_rank_0(comm::ProcessGroup& group, const std::string& text) {
  std::array<std::int64_t, 1> size{std::ssize(text)};
  group.broadcast(std::span<std::int64_t>(size), 0);
  std::string out = text;
  out.resize(static_cast<std::size_t>(size[0]));
  const std::span<std::uint8_t> bytes(reinterpret_cast<std::uint8_t*>(out.data()), out.size());
  if (!out.empty()) group.broadcast(bytes, 0);
  return out;
}

// Returns the ranks' texts, by rank, on rank 0, and nothing on the other ranks.
std::vector<std::string> on_rank_0(comm::ProcessGroup& group, const std::string& text) {
  const auto world = static_cast<std::size_t>(group.size());
  const std::array<std::int64_t, 1> size{std::ssize(text)};
  std::vector<std::int64_t> sizes(world);
  group.all_gather(std::span<const std::int64_t>(size), std::span<std::int64_t>(sizes));
  const auto most = static_cast<std::size_t>(*std::ranges::max_element(sizes));
  std::vector<std::uint8_t> mine(text.begin(), text.end()), all;
  mine.resize(most);
  if (group.rank() == 0) all.resize(most * world);
  group.gather(std::span<const std::uint8_t>(mine), std::span<std::uint8_t>(all), 0);
  std::vector<std::string> out;
  for (std::size_t r = 0; r < world && group.rank() == 0; ++r) {
    const auto* begin = all.data() + r * most;
    out.emplace_back(begin, begin + sizes[r]);
  }
  return out;
}

Snapshot from_rank_0(comm::ProcessGroup& group, Snapshot snapshot) {
  nlohmann::json form = {{"step", snapshot.step}, {"values", snapshot.values}};
  for (const auto& [file, tensors] : snapshot.tensors)
    for (const auto& [name, t] : tensors)
      form["tensors"][file][name] = {static_cast<int>(t.dtype()), t.sizes()};
  form = nlohmann::json::parse(from_rank_0(group, form.dump()));
  snapshot.step = form["step"];
  snapshot.values = form["values"].get<Metadata>();
  std::vector<Tensor> all;
  for (const auto& [file, tensors] : form["tensors"].items())
    for (const auto& [name, t] : tensors.items()) {
      Tensor& tensor = snapshot.tensors[file][name];
      if (group.rank() != 0)
        tensor = Tensor::empty(t[1].get<Shape>(), {static_cast<DType>(t[0].get<int>())});
      all.push_back(tensor);
    }
  broadcast_coalesced(group, all, 0);
  return snapshot;
}

// ---- the files that a rank sees ----

// One line per checkpoint in the folder, with the digest of its manifest.
std::string seen_in(const std::string& folder, bool one_checkpoint) {
  std::string out;
  const auto add = [&](const std::string& path) {
    if (!has_manifest(path)) return;
    const auto bytes = read_file(fs::path(path) / "manifest.json", "manifest");
    out +=
        fs::path(path).filename().string() + " " + sha256(std::as_bytes(std::span(bytes))) + "\n";
  };
  if (one_checkpoint)
    add(folder);
  else
    for (const auto& [step, path] : list_snapshots(folder)) add(path);
  return out;
}

std::string last_of(const std::string& seen) {
  if (seen.empty()) return "no checkpoint";
  const std::size_t last = seen.rfind('\n', seen.size() - 2);
  const std::string line = seen.substr(last == std::string::npos ? 0 : last + 1);
  return line.substr(0, line.find(' '));
}

// ---- numbers as text ----

const std::string& value(const Metadata& values, const std::string& name) {
  const auto at = values.find(name);
  require(at != values.end(),
          "the checkpoint's state.json has no '" + name + "': another version wrote it");
  return at->second;
}

template <class T>
std::vector<T> numbers(const std::string& text, std::size_t least = 1) {
  std::istringstream in(text);
  std::vector<T> out;
  for (T x{}; in >> x;) out.push_back(x);
  require(in.eof() && out.size() >= least,
          "the checkpoint's state.json has '" + text + "' instead of numbers");
  return out;
}

const StateDict& tensors_of(const Snapshot& snapshot, const char* file) {
  const auto at = snapshot.tensors.find(file);
  require(at != snapshot.tensors.end(), std::string("the checkpoint's manifest names no ") + file +
                                            ".safetensors: another program wrote it");
  return at->second;
}

double real(const Metadata& values, const std::string& name) {
  return numbers<double>(value(values, name)).at(0);
}

}  // namespace

std::string identity_of(const std::vector<std::span<const std::byte>>& data) {
  Sha256 hash;
  std::size_t bytes = 0;
  for (const auto& part : data) {
    hash.update(part);
    bytes += part.size();
  }
  return fmt::format("{} bytes with SHA-256 {}...", bytes, hash.hex().substr(0, 16));
}

RunState sampler_state(std::function<SamplerState()> save,
                       std::function<void(const SamplerState&)> load) {
  return {"sampler",
          [save = std::move(save)] {
            const SamplerState sampler = save();
            return fmt::format("{} {}", sampler.epoch, sampler.used);
          },
          [load = std::move(load)](const std::string& text) {
            const auto n = numbers<std::int64_t>(text, 2);
            load({n.at(0), n.at(1)});
          }};
}

RunState order_state(std::function<std::vector<int>()> save,
                     std::function<void(const std::vector<int>&)> load) {
  return {"ready_order",
          [save = std::move(save)] { return fmt::format("{}", fmt::join(save(), " ")); },
          [load = std::move(load)](const std::string& text) {
            if (!text.empty()) load(numbers<int>(text));
          }};
}

std::vector<RunState> states_of(Batches& batches, DistributedDataParallel& ddp) {
  return {sampler_state([&] { return batches.state(); },
                        [&](const SamplerState& state) { batches.load_state(state); }),
          order_state([&] { return ddp.ready_order(); },
                      [&](const std::vector<int>& order) { ddp.rebuild_in(order); })};
}

std::string how_to_continue(std::int64_t step, std::int64_t steps, const std::string& folder) {
  return fmt::format(
      "stopped by a signal after step {} of {}, and saved; continue with\n"
      "  --run-dir {} --resume auto",
      step, steps, folder);
}

RunCheckpoints::RunCheckpoints(comm::ProcessGroup& group, const TrainOptions& options, Say say)
    : group_(group), options_(options), say_(std::move(say)) {}

std::string RunCheckpoints::open_folder() {
  require(!is_auto() || !options_.run_dir.empty(),
          "--resume auto needs --run-dir: the folder of the run to continue");
  read_given();  // first, so that an error leaves no new folder behind
  folder_ = is_auto() ? reopen_run_dir(options_.run_dir) : create_run_dir(options_.run_dir);
  if (options_.save_every > 0 || is_auto()) take_lock({});
  if (is_auto()) found_ = newest();
  return folder_;
}

void RunCheckpoints::look_in(const std::string& folder) {
  read_given();
  folder_ = folder;
  if (is_auto()) found_ = newest();
}

void RunCheckpoints::take_lock(std::chrono::milliseconds patience) {
  for (const Deadline end = Deadline::in(patience); !manager_;) try {
      manager_ = std::make_unique<CheckpointManager>(checkpoints(), options_.keep);
    } catch (const UsageError&) {
      if (end.passed()) throw;
      std::this_thread::sleep_for(kLockLook);
    }
}

std::string RunCheckpoints::checkpoints() const { return fs::path(folder_) / kCheckpoints; }

// Throws UsageError if a complete checkpoint is not sound, or was rejected before.
void RunCheckpoints::examine(const Snapshot& snapshot, const std::string& path) const {
  const auto fail = [&](const std::string& fault) {
    throw UsageError(fmt::format("checkpoint '{}' cannot be used: {}", path, fault));
  };
  for (const auto& [file, tensors] : snapshot.tensors)
    for (const auto& [name, tensor] : tensors)
      if (!raw::all_finite(tensor))
        fail(fmt::format("{}.safetensors holds NaN or an infinity in '{}'", file, name));
  try {
    if (const auto optimizer = snapshot.tensors.find(kOptimizer);
        optimizer != snapshot.tensors.end())
      check_optimizer_state(optimizer->second);
  } catch (const UsageError& e) {
    fail(e.what());
  }
  if (const auto refused = refused_.find(snapshot.step); refused != refused_.end())
    fail(refused->second);
}

// If the checkpoint of --resume is unusable, the error names the newest other candidate in the
// run's folder, the given folder, or the folder that contains the checkpoint.
void RunCheckpoints::read_given() {
  if (options_.resume.empty() || is_auto()) return;
  found_path_ = options_.resume;
  try {
    found_ = read_snapshot(found_path_);
    examine(*found_, found_path_);
  } catch (const UsageError& e) {
    fs::path given(found_path_);
    if (!given.has_filename()) given = given.parent_path();  // runs/x/
    for (const fs::path& folder : {given / kCheckpoints, given, given.parent_path()})
      for (auto all = list_snapshots(folder); !all.empty(); all.pop_back())
        if (const std::string& other = all.back().second; other != given && has_manifest(other))
          throw UsageError(fmt::format("{}; continue with --resume {}", e.what(), other));
    throw UsageError(fmt::format(
        "{}; --resume takes a folder step-NUMBER that a run with --save-every has written",
        e.what()));
  }
}

// If all checkpoints are incomplete, training starts from the beginning. If none is usable for
// another reason, the user must decide, because a run from the start would overwrite them.
std::optional<Snapshot> RunCheckpoints::newest() {
  const fs::path folder = checkpoints();
  std::vector<std::string> skipped;
  const auto skip = [&](const std::string& why) { skipped.push_back(why); };
  const auto look = [&](const Snapshot& s) { examine(s, folder / snapshot_name(s.step)); };
  auto found =
      manager_ ? manager_->load_newest(skip, look)
               : newest_snapshot(
                     folder, [&](const std::string&, const std::string& why) { skip(why); }, look);
  for (const auto& [step, path] : list_snapshots(folder))
    if (!found && has_manifest(path))
      throw UsageError(
          fmt::format("{}; no other checkpoint can be used, and a run from the start would "
                      "overwrite them: move '{}' away, or choose another --run-dir",
                      skipped.front(), folder.string()));
  for (const std::string& why : skipped)
    if (said_.insert(why).second) say_("skipped: " + printable(why));
  if (found) found_path_ = folder / snapshot_name(found->step);
  return found;
}

// Throws unless every rank sees either no checkpoint or exactly those of rank 0, which reads for
// all ranks. The folder need not be shared, so another one may have the checkpoint that is wanted.
void RunCheckpoints::check_same_files() {
  const std::string folder =
      is_auto() ? (fs::path(options_.run_dir) / kCheckpoints).string() : options_.resume;
  std::string mine, theirs, host;
  together(group_, [&] { mine = seen_in(folder, !is_auto()); });
  theirs = from_rank_0(group_, mine);
  host = from_rank_0(group_, host_name());
  together(group_, [&] {
    require(mine.empty() || mine == theirs,
            fmt::format("'{}' is not the same folder on all ranks: its newest checkpoint is {} on "
                        "rank {} ({}), but {} on rank 0 ({}); put it where all ranks see it, or "
                        "start rank 0 on the right host",
                        folder, last_of(mine), group_.rank(), host_name(), last_of(theirs), host));
  });
}

// On rank 0. Throws UsageError on the first difference between the saved and the current run.
void RunCheckpoints::check(const Trained& trained) const {
  const auto fail = [&](const std::string& what, const std::string& before,
                        const std::string& now) {
    throw UsageError(
        fmt::format("checkpoint '{}' is from a different training run: {} was {}, but is {} here; "
                    "use the old value, or start a new run without --resume",
                    found_path_, what, before, now));
  };
  for (const auto& [name, now] : fixed_) {
    const auto before = found_->values.find(kFixed + name);
    if (before == found_->values.end() || before->second != now)
      fail(name, before == found_->values.end() ? "not there" : before->second, now);
  }
  const auto described = [](const StateDict& state, const std::string& name) {
    const auto at = state.find(name);
    if (at == state.end()) return std::string("not there");
    return std::string(name_of(at->second.dtype())) + to_string(at->second.sizes());
  };
  const StateDict mine = trained.model.state_dict(), &saved = tensors_of(*found_, kModel);
  for (const StateDict* names : {&mine, &saved})
    for (const auto& [name, tensor] : *names)
      if (described(saved, name) != described(mine, name))
        fail("parameter '" + name + "'", described(saved, name), described(mine, name));
  require(found_->step <= trained.steps,
          fmt::format(
              "checkpoint '{}' is from step {}, but the run has only {}: give --steps {} or more",
              found_path_, found_->step, trained.steps, found_->step));
}

void RunCheckpoints::describe(const Trained& trained) {
  trained_.emplace(trained);
  const TrainOptions& o = options_;
  // For these options, the values in effect are saved; for other options, the values as given.
  free_ = {{"--steps", std::to_string(trained.steps)},
           {"ranks", std::to_string(trained.ranks)},
           {"--global-batch", std::to_string(trained.batch_size * trained.ranks * o.accumulate)},
           {"--device", trained.model.device().is_cpu() ? "cpu" : "cuda"},
           {"--bf16-products",
            o.amp == "bf16" ? std::string(name_of(kernels::bf16_products())) : o.bf16_products}};
  const auto named = [](const comm::Settings& settings, const std::string& name) {
    return std::ranges::find(settings, name, &comm::Settings::value_type::first) != settings.end();
  };
  for (const auto& [name, value] : o.settings)
    if (name.starts_with("--") && !named(free_, name) && !named(trained.fixed, name) &&
        std::ranges::find(kOfNoNumber, name) == kOfNoNumber.end())
      free_.emplace_back(name, value);
  fixed_ = trained.fixed;
  fixed_.emplace_back("--seed", std::to_string(o.seed));
  fixed_.emplace_back(kTrainingData, trained.data);
}

Reached RunCheckpoints::resume(const Trained& trained) {
  describe(trained);
  if (options_.resume.empty()) return {};

  check_same_files();
  for (;;) {
    if (from_rank_0(group_, found_ ? "found" : "").empty()) {
      say_(fmt::format("no checkpoint in '{}' to continue from: training starts from the beginning",
                       options_.run_dir));
      return {};
    }
    together(group_, [&] {
      if (group_.rank() == 0) check(trained);
    });
    const Snapshot snapshot = from_rank_0(group_, std::move(found_).value_or(Snapshot{}));
    found_.reset();
    double loss = 0;
    together(group_, [&] {
      load(snapshot);
      loss = trained.next_loss();
    });
    loss = sum_over_ranks(group_, {loss})[0];
    if (std::isfinite(loss)) {
      Reached out;
      together(group_, [&] {
        load(snapshot);  // restores the batches and random numbers used by the trial
        const auto skipped = snapshot.values.find("skipped");
        out = {snapshot.step, real(snapshot.values, "first_loss"),
               real(snapshot.values, "last_loss"),
               skipped == snapshot.values.end() ? 0 : std::stoll(skipped->second)};
        if (group_.rank() == 0) resumed_from_ = seen_in(found_path_, true);
      });
      announce(snapshot);
      return out;
    }
    together(group_, [&] {
      if (group_.rank() != 0) return;
      const std::string why = fmt::format("the loss of the next step, {}, is {}", snapshot.step + 1,
                                          std::isnan(loss) ? "NaN" : "infinite");
      require(is_auto(), fmt::format("checkpoint '{}' cannot be used: {}; continue from an older "
                                     "one, or look for bad values in the data",
                                     found_path_, why));
      refused_[snapshot.step] = why;
      found_ = newest();
    });
  }
}

void RunCheckpoints::load(const Snapshot& snapshot) {
  const Metadata& values = snapshot.values;
  trained_->model.load_state_dict(tensors_of(snapshot, kModel));
  // The command line's optimizer options take precedence, unlike in PyTorch's load_state_dict().
  StateDict optimizer = tensors_of(snapshot, kOptimizer);
  for (const auto& [name, value] : trained_->optimizer.state_dict())
    if (name.rfind("param_groups.", 0) == 0 && optimizer.count(name) != 0) optimizer[name] = value;
  trained_->optimizer.load_state_dict(optimizer);
  if (const auto scaler = snapshot.tensors.find(kScaler); scaler != snapshot.tensors.end())
    trained_->scaler.load_state_dict(scaler->second);
  for (const RunState& state : trained_->states) state.load(value(values, state.name));
  const auto rng = values.find("rng." + std::to_string(group_.rank()));
  // Multiplied by the step, so that new ranks do not repeat the seeds of older ones.
  constexpr std::uint64_t kApart = 1'000'003;
  if (rng != values.end())
    set_rng_state(rng->second);
  else
    manual_seed(options_.seed + 1 + static_cast<std::uint64_t>(group_.rank()) +
                kApart * static_cast<std::uint64_t>(snapshot.step));
}

void RunCheckpoints::announce(const Snapshot& snapshot) const {
  const Metadata& values = snapshot.values;
  say_(fmt::format("resumed from '{}': {} of {} steps were done", found_path_, snapshot.step,
                   trained_->steps));
  std::string others;
  for (const auto& [name, now] : free_) {
    const auto before = values.find(kFree + name);
    if (before == values.end() || before->second == now) continue;
    others +=
        fmt::format("{}{} {} (was {})", others.empty() ? "" : ", ", name, now, before->second);
  }
  if (!others.empty())
    say_("changed: " + others +
         "; from here on the numbers may differ from those of an uninterrupted run");
  if (options_.comm_hook == "powersgd")
    say_(
        fmt::format("powersgd restarts with {} steps of plain all-reduce: checkpoints do not "
                    "contain its factors and unsent remainders; from here on the numbers differ "
                    "from those of an uninterrupted run",
                    options_.powersgd_start));
}

void RunCheckpoints::await_writer(std::int64_t step) {
  // Rank 0 waits in short intervals, so that even with a slow disk no rank's wait for rank 0
  // exceeds its deadline.
  const auto piece = std::chrono::milliseconds(static_cast<std::int64_t>(250 * options_.timeout));
  enum : std::int32_t { writing, written, refused };
  for (std::array<std::int32_t, 1> state{writing}; state[0] != written;) {
    if (group_.rank() == 0)  // without a manager no write is in progress
      state[0] = !manager_                    ? written
                 : !manager_->wait_for(piece) ? writing
                 : manager_->failed()         ? refused
                                              : written;
    group_.broadcast(std::span<std::int32_t>(state), 0);
    if (state[0] == refused) stop(step);
  }
}

bool RunCheckpoints::due(std::int64_t step) const {
  return options_.save_every > 0 && (step % options_.save_every == 0 || step == trained_->steps);
}

void RunCheckpoints::step_done(const Reached& reached, bool last) {
  if (!due(reached.step) && !last) return;
  if (options_.save_every == 0)  // no manager was needed until now
    together(group_, [&] {
      if (group_.rank() == 0) take_lock({});
    });
  await_writer(reached.step);
  require_sound(reached.step);
  const std::vector<std::string> rng = on_rank_0(group_, get_rng_state());
  if (group_.rank() != 0) return;
  Snapshot snapshot{
      reached.step,
      {{kModel, trained_->model.state_dict()}, {kOptimizer, trained_->optimizer.state_dict()}},
      {}};
  snapshot.values = {{"first_loss", fmt::format("{}", reached.first_loss)},
                     {"last_loss", fmt::format("{}", reached.last_loss)},
                     {"skipped", std::to_string(reached.skipped)}};
  if (StateDict scaler = trained_->scaler.state_dict(); !scaler.empty())
    snapshot.tensors[kScaler] = std::move(scaler);
  for (const RunState& state : trained_->states) snapshot.values[state.name] = state.save();
  for (std::size_t r = 0; r < rng.size(); ++r) snapshot.values["rng." + std::to_string(r)] = rng[r];
  for (const auto& [name, value] : fixed_) snapshot.values[kFixed + name] = value;
  for (const auto& [name, value] : free_) snapshot.values[kFree + name] = value;
  manager_->hold(std::move(snapshot));
}

void RunCheckpoints::prove() {
  if (manager_) manager_->release();
}

void RunCheckpoints::require_sound(std::int64_t step) const {
  const std::string when = fmt::format("after step {}", step);
  require_finite(group_, trained_->model.state_dict(), when);
  require_finite(group_, trained_->optimizer.state_dict(), when);
}

void RunCheckpoints::stop(std::int64_t step) {
  if (!manager_) throw QuietStop(ExitCode::internal);
  std::string why;
  try {
    manager_->wait();
  } catch (const std::exception& e) {
    why = e.what();
  }
  const std::string last = last_of(seen_in(manager_->folder(), false));
  throw Error(
      fmt::format("{}; training has stopped after step {} with {} in '{}': make room there, and "
                  "continue with --resume auto",
                  why, step, last, manager_->folder()));
}

void RunCheckpoints::finish(std::int64_t step) {
  prove();
  if (saves_when_stopped(options_)) await_writer(step);
}

}  // namespace ringsmith::apps
