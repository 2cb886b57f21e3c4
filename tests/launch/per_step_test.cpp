// Tests ringrun --per-step with real training runs: random ranks are killed and started again while
// the others continue. `make test-per-step` does this for three minutes on each transport, with a
// kill every 10 s; RINGSMITH_TEST_SECONDS and RINGSMITH_TEST_EVERY (seconds) change these times.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <set>

#include "runtime/base/error.hpp"
#include "runtime/checkpoint/snapshot.hpp"
#include "tests/launch/background.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/processes_of.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;

namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr int kRanks = 4;

double number_from(const char* name, double otherwise) {
  const std::string text = variable(name);
  return text.empty() ? otherwise : std::stod(text);
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::vector<std::string> training(const std::string& folder, std::int64_t steps,
                                  const std::vector<std::string>& more,
                                  const std::string& batch = "16") {
  return std::vector<std::string>{kRingrun,
                                  "--standalone",
                                  "--per-step",
                                  "--nproc-per-node",
                                  std::to_string(kRanks),
                                  "--",
                                  RINGSMITH_BINARY_DIR "/bin/train_mlp",
                                  "--per-step",
                                  "--draw",
                                  "2000",
                                  "--hidden",
                                  "64",
                                  "--batch",
                                  batch,
                                  "--progress",
                                  "off",
                                  "--run-dir",
                                  folder,
                                  "--steps",
                                  std::to_string(steps)} +
         more;
}

// Returns the lines of each rank. Skips an incomplete last line.
std::vector<std::vector<json>> read_steps(const std::string& folder) {
  std::vector<std::vector<json>> out(kRanks);
  for (int r = 0; r < kRanks; ++r) {
    std::ifstream in(folder + "/steps-rank-" + std::to_string(r) + ".jsonl");
    for (std::string line; std::getline(in, line);)
      if (json::accept(line)) out[static_cast<std::size_t>(r)].push_back(json::parse(line));
  }
  return out;
}

// Reads only the files' ends, because the ranks need the CPU time.
std::int64_t newest_step(const std::string& folder) {
  std::int64_t newest = -1;
  for (int r = 0; r < kRanks; ++r) {
    std::ifstream in(folder + "/steps-rank-" + std::to_string(r) + ".jsonl", std::ios::ate);
    const auto size = static_cast<std::int64_t>(in.tellg());
    in.seekg(std::max<std::int64_t>(0, size - 4096));
    for (std::string line; std::getline(in, line);)
      if (json::accept(line))
        newest = std::max(newest, json::parse(line).value("step", std::int64_t{-1}));
  }
  return newest;
}

// Returns the earliest time at which a rank recorded each step.
std::map<std::int64_t, double> times_of(const std::vector<std::vector<json>>& steps) {
  std::map<std::int64_t, double> out;
  for (const auto& of_rank : steps)
    for (const json& line : of_rank) {
      if (!line.contains("loss")) continue;
      const double time = line["time"];
      const auto [at, fresh] = out.emplace(line["step"], time);
      if (!fresh) at->second = std::min(at->second, time);
    }
  return out;
}

std::int64_t count_between(const std::map<std::int64_t, double>& times, double begin, double end) {
  return std::ranges::count_if(
      times, [&](const auto& step) { return step.second >= begin && step.second < end; });
}

pid_t process_of(const std::string& mark, int rank) {
  const auto ranks = processes_with("RANK=" + std::to_string(rank));
  for (const pid_t pid : processes_with(mark))
    if (std::ranges::find(ranks, pid) != ranks.end()) return pid;
  return -1;
}

int count(const std::string& text, const std::string& word) {
  int n = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

// All ranks of a step must report the same ranks, the same loss and, if a rank joined, the same
// parameters after the step. No step may be missing, and no sample may be used twice in an epoch.
void check_agreement(const std::vector<std::vector<json>>& steps, std::int64_t samples,
                     std::int64_t batch, std::int64_t accumulate = 1) {
  std::map<std::int64_t, json> seen;
  std::map<std::int64_t, std::vector<std::int64_t>> taken;
  for (const auto& of_rank : steps)
    for (json line : of_rank) {
      if (!line.contains("loss")) continue;
      const std::int64_t step = line["step"];
      for (const std::int64_t s : line["samples"]) taken[step].push_back(s);
      line.erase("samples");
      line.erase("time");
      const auto [at, fresh] = seen.emplace(step, line);
      if (at->second != line) FAIL("step " << step << ": " << at->second << " and " << line);
    }
  std::set<std::int64_t> of_epoch;
  std::int64_t used = 0, next = 0;
  for (const auto& [step, line] : seen) {
    if (step != next++) FAIL("step " << next - 1 << " is missing");
    const std::int64_t of_all =
        (std::ssize(line["ranks"]) - line["joining"].get<std::int64_t>()) * batch;
    if (used + of_all > samples) {
      of_epoch.clear();
      used = 0;
    }
    used += of_all * std::min(accumulate, (samples - used) / of_all);
    for (const std::int64_t s : taken[step])
      if (!of_epoch.insert(s).second) FAIL("step " << step << ": sample " << s << " comes twice");
  }
}

std::string tensors_of(const std::string& file) {
  const std::string bytes = read_text(file);
  std::uint64_t header = 0;
  bytes.copy(reinterpret_cast<char*>(&header), sizeof header);
  return bytes.substr(sizeof header + header);
}

std::vector<std::int64_t> checkpoints_in(const std::string& run) {
  std::vector<std::int64_t> out;
  for (const auto& [step, path] : list_snapshots(run + "/checkpoints"))
    if (has_manifest(path)) out.push_back(step);
  return out;
}

int wait_long(Background& run) {
  int code = -1;
  for (int i = 0; i < 20 && code < 0; ++i) code = run.wait();
  return code;
}

struct KillTest {
  double seconds = 10, every = 3;  // every: seconds between two kills
  std::vector<std::string> options;
  std::int64_t accumulate = 1;
};

void run_kill_test(const KillTest& test) {
  const TemporaryFolder folder;
  // The pilot measures how many steps fill the time.
  const ProgramResult pilot = run_program(training(folder / "pilot", 200, test.options), 120);
  INFO(pilot.err);
  REQUIRE(pilot.exit_code == 0);
  const auto first = times_of(read_steps(folder / "pilot"));
  const double pilot_rate =
      static_cast<double>(first.size() - 1) / (first.rbegin()->second - first.begin()->second);
  const double quiet = test.seconds / 5;
  const auto steps = static_cast<std::int64_t>(pilot_rate * (test.seconds + 2 * quiet));

  const std::string mark = "RINGSMITH_TEST_MARK=" + std::to_string(getpid());
  std::vector<std::string> command = training(folder / "run", steps, test.options);
  command.insert(command.begin(), {"/usr/bin/env", mark});
  Background run(command);
  REQUIRE(eventually([&] { return newest_step(folder / "run") >= 0; }));
  std::this_thread::sleep_for(std::chrono::duration<double>(quiet));

  std::mt19937 random(std::random_device{}());
  const double kills_begin = seconds_now();
  int kills = 0;
  std::vector<double> killed_at;
  while (seconds_now() < kills_begin + test.seconds - test.every / 2) {
    // Stops killing early if the training is about to end: its steps are faster than the pilot's.
    if (newest_step(folder / "run") > steps * 9 / 10) break;
    const int rank = static_cast<int>(random() % kRanks);
    if (const pid_t pid = process_of(mark, rank); pid > 0 && ::kill(pid, SIGKILL) == 0) {
      ++kills;
      killed_at.push_back(seconds_now());
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(
        test.every * std::uniform_real_distribution<double>(0.55, 1.45)(random)));
  }
  const int code = wait_long(run);
  const std::string output = run.output();
  INFO(output);
  CHECK(code == 0);
  const auto lines = read_steps(folder / "run");
  const auto times = times_of(lines);
  REQUIRE(std::ssize(times) == steps);
  check_agreement(lines, 2000, 16, test.accumulate);

  REQUIRE(kills > 0);
  std::set<std::int64_t> failed;
  for (const auto& of_rank : lines)
    for (const json& line : of_rank)
      if (line.contains("failed")) failed.insert(line["quorum"].get<std::int64_t>());
  CHECK(std::ssize(failed) <= kills);              // at most the current step of each kill
  CHECK(count(output, "is lost after") == kills);  // no other rank was started again
  std::set<std::string> digests;
  for (const auto& of_rank : lines) {
    REQUIRE(!of_rank.empty());
    REQUIRE(of_rank.back().contains("sha256"));
    digests.insert(of_rank.back()["sha256"].get<std::string>());
  }
  CHECK(digests.size() == 1);

  // The last third of the time between two kills counts as undisturbed, because the killed rank
  // should have returned. If the machine is slow for a while, both rates fall.
  double expected = 0, in_kills = 0;
  for (std::size_t k = 0; k + 1 < killed_at.size(); ++k) {
    const double from = killed_at[k], to = killed_at[k + 1], calm = to - (to - from) / 3;
    expected += 3 * static_cast<double>(count_between(times, calm, to));
    in_kills += static_cast<double>(count_between(times, from, to));
  }
  const double share = in_kills / expected;
  int joined = 0;
  std::set<std::int64_t> quorums;
  for (const auto& of_rank : lines)
    for (const json& line : of_rank)
      if (line.value("joining", 0) > 0 && quorums.insert(line["step"].get<std::int64_t>()).second)
        joined += line["joining"].get<int>();
  std::printf(
      "per step: %d ranks, %.0f s with %d kills: %.0f steps, %.1f %% of what the calm third before "
      "each kill makes; %zd tries of steps failed; %d ranks joined; all end with SHA-256 "
      "%.16s...\n",
      kRanks, killed_at.back() - killed_at.front(), kills, in_kills, 100 * share, failed.size(),
      joined, digests.begin()->c_str());
  std::fflush(stdout);
  CHECK(joined <= kills);  // a rank may be killed before it has joined
  // With more frequent kills, no third is undisturbed.
  if (test.seconds >= 60 && test.every >= 10) CHECK(share >= 0.8);
}

}  // namespace

TEST_CASE("per step: random ranks are killed, the others go on, all agree at the end",
          "[per_step]") {
  const bool all_at_once = GENERATE(false, true);
  if (!all_at_once) return run_kill_test({.seconds = 6, .every = 3, .options = {}});
  run_kill_test(
      {.seconds = 6,
       .every = 3,
       .options = {"--accumulate", "2", "--amp", "f16", "--save-every", "20", "--keep", "2"},
       .accumulate = 2});
}

TEST_CASE("per step for minutes, on each transport", "[.per_step_kills]") {
  const std::string transport = GENERATE("shm", "tcp");
  run_kill_test({.seconds = number_from("RINGSMITH_TEST_SECONDS", 180),
                 .every = number_from("RINGSMITH_TEST_EVERY", 10),
                 .options = {"--transport", transport}});
}

TEST_CASE("per step without a loss has the bits of DistributedDataParallel", "[per_step]") {
  const std::vector<std::string> more =
      GENERATE(std::vector<std::string>{}, std::vector<std::string>{"--accumulate", "3"},
               std::vector<std::string>{"--accumulate", "2", "--amp", "f16"},
               std::vector<std::string>{"--amp", "f16"});
  CAPTURE(more);
  const bool skips = more.size() == 2 && more[1] == "f16";
  const std::string batch = skips ? "1" : "16";
  const TemporaryFolder folder;
  const ProgramResult with = run_program(training(folder / "a", 40, more, batch), 60);
  INFO(with.out << with.err);
  REQUIRE(with.exit_code == 0);
  CHECK((with.out.find("skipped: ") != std::string::npos) == skips);
  std::vector<std::string> plain = training(folder / "b", 40, more, batch);
  std::erase(plain, "--per-step");
  REQUIRE(run_program(plain, 60).exit_code == 0);
  CHECK(tensors_of(folder / "a/model.safetensors") == tensors_of(folder / "b/model.safetensors"));
  const ProgramResult again = run_program(training(folder / "a", 40, more), 60);
  CHECK(again.exit_code == static_cast<int>(ExitCode::usage));
  CHECK_THAT(again.err, ContainsSubstring("choose another run directory with --run-dir"));
}

TEST_CASE(
    "per step: a job that is killed or stopped, and started again, has the bits of one that was "
    "not",
    "[per_step]") {
  const TemporaryFolder folder;
  constexpr std::int64_t kSteps = 150;
  const std::string mark = "RINGSMITH_TEST_MARK=" + std::to_string(getpid());
  const auto command_for = [&](const std::string& run) {
    std::vector<std::string> command =
        training(folder / run, kSteps,
                 {"--save-every", "7", "--keep", "100", "--accumulate", "2", "--amp", "f16",
                  "--resume", "auto"});
    command.insert(command.begin(), {"/usr/bin/env", mark});
    return command;
  };
  REQUIRE(run_program(command_for("whole"), 120).exit_code == 0);
  CHECK(checkpoints_in(folder / "whole").size() == kSteps / 7 + 1);
  // kill: SIGKILL to ringrun, whose guardian ends the ranks; one: SIGTERM or SIGUSR1 to one rank,
  // which ends all; ringrun: SIGTERM to ringrun, which forwards it.
  enum class End { kill, one, ringrun };
  for (const End end : {End::kill, End::one, End::ringrun}) {
    const std::string run = folder / std::to_string(static_cast<int>(end));
    int ended = 0, code = -1;
    std::string said;
    for (std::int64_t until = 20; code != 0; until += 40) {
      Background job(command_for(std::to_string(static_cast<int>(end))));
      (void)eventually([&] { return newest_step(run) >= until || !alive(job.pid()); });
      const int signal = ended % 2 == 0 ? SIGTERM : SIGUSR1;
      if (end == End::kill) {
        ::kill(job.pid(), SIGKILL);
      } else if (end == End::ringrun) {
        ::kill(job.pid(), SIGTERM);
      } else if (const pid_t pid = process_of(mark, 2); pid > 0) {
        ::kill(pid, signal);
      }
      code = job.wait();
      said = job.output();
      INFO(said);
      REQUIRE((code == 0 || code == (end == End::kill ? 128 + SIGKILL : 75)));
      ended += code == 0 ? 0 : 1;
      if (code == 75)
        CHECK_THAT(said, ContainsSubstring("stopped by a signal after step ") &&
                             ContainsSubstring("--run-dir " + run + " --resume auto"));
      if (ended > 0 && code == 0) CHECK_THAT(said, ContainsSubstring("resumed from '" + run));
      REQUIRE(eventually([&] { return processes_with(mark).empty(); }));
    }
    CHECK(ended >= 2);
    CHECK(tensors_of(run + "/model.safetensors") == tensors_of(folder / "whole/model.safetensors"));
    const auto lines = read_steps(run);
    CHECK(std::ssize(times_of(lines)) == kSteps);
    check_agreement(lines, 2000, 16, 2);
    for (const char* file : {"model", "optimizer", "scaler", "state"}) {
      const std::string of_last = "/checkpoints/" + snapshot_name(kSteps) + "/" + file;
      const std::string extension = std::string(file) == "state" ? ".json" : ".safetensors";
      CHECK(read_text(run + of_last + extension) ==
            read_text(folder / "whole" + of_last + extension));
    }
  }
}

TEST_CASE("per step: when the rank that writes checkpoints is lost, the next one does",
          "[per_step]") {
  const TemporaryFolder folder;
  constexpr std::int64_t kSteps = 200;
  const std::string mark = "RINGSMITH_TEST_MARK=" + std::to_string(getpid());
  std::vector<std::string> command =
      training(folder / "run", kSteps, {"--save-every", "1", "--keep", "500"});
  command.insert(command.begin(), {"/usr/bin/env", mark});
  Background run(command);
  for (const int rank : {0, 1, 2}) {  // by seniority
    const auto before = checkpoints_in(folder / "run").size();
    REQUIRE(eventually([&] { return checkpoints_in(folder / "run").size() > before + 10; }));
    REQUIRE(::kill(process_of(mark, rank), SIGKILL) == 0);
  }
  const int code = wait_long(run);
  const std::string output = run.output();
  INFO(output);
  CHECK(code == 0);
  check_agreement(read_steps(folder / "run"), 2000, 16);
  // Only checkpoints that a killed rank had neither written nor handed on may be missing.
  const auto saved = checkpoints_in(folder / "run");
  CHECK(std::ssize(saved) >= kSteps - 2 * 3);
  CHECK(saved.back() == kSteps);
  for (const std::int64_t step : saved)
    CHECK(read_snapshot(folder / ("run/checkpoints/" + snapshot_name(step))).step == step);
}

TEST_CASE("per step and without it: each continues from the other's checkpoints, with its bits",
          "[per_step]") {
  const TemporaryFolder folder;
  const bool per_step_first = GENERATE(true, false);
  const auto start = [&](const std::string& name, bool per_step, std::int64_t steps,
                         const std::vector<std::string>& more) {
    std::vector<std::string> command =
        training(folder / name, steps, std::vector<std::string>{"--save-every", "10"} + more);
    if (!per_step) std::erase(command, "--per-step");
    const ProgramResult result = run_program(command, 60);
    INFO(result.out << result.err);
    REQUIRE(result.exit_code == 0);
    return result.out;
  };
  (void)start("whole", !per_step_first, 40, {});
  const std::string from = folder / ("whole/checkpoints/" + snapshot_name(20));
  CHECK_THAT(start("rest", per_step_first, 40, {"--resume", from}),
             ContainsSubstring("resumed from '" + from + "': 20 of 40 steps were done"));
  for (const char* file : {"model", "checkpoints/step-000040/optimizer"})
    CHECK(tensors_of(folder / ("whole/" + std::string(file) + ".safetensors")) ==
          tensors_of(folder / ("rest/" + std::string(file) + ".safetensors")));
}

TEST_CASE("per step: a checkpoint that cannot be continued from is refused once, or skipped",
          "[per_step]") {
  const TemporaryFolder folder;
  const auto resume = [&](std::int64_t steps, const std::vector<std::string>& more) {
    return run_program(
        training(folder / "run", steps, std::vector<std::string>{"--save-every", "10"} + more), 60);
  };
  REQUIRE(resume(30, {}).exit_code == 0);
  const ProgramResult seed = resume(40, {"--resume", "auto", "--seed", "7"});
  INFO(seed.err);
  CHECK(seed.exit_code == static_cast<int>(ExitCode::usage));
  CHECK_THAT(seed.err,
             ContainsSubstring("is from a different training run: --seed was 0, but is 7 here"));
  CHECK(count(seed.err, "] train_mlp: error: ") == 1);  // only one rank prints it
  // Plants finite weights whose loss is not finite.
  const std::string newest = folder / ("run/checkpoints/" + snapshot_name(30));
  Snapshot snapshot = read_snapshot(newest);
  for (const auto& [name, tensor] : snapshot.tensors.at("model")) tensor.fill_(3e38);
  write_snapshot(newest, snapshot);
  const ProgramResult past = resume(40, {"--resume", "auto"});
  INFO(past.out << past.err);
  CHECK(past.exit_code == 0);
  CHECK(count(past.out, snapshot_name(30) + "' cannot be used: the loss of the next step") == 1);
  CHECK(count(past.out, "resumed from '") == 1);
  CHECK_THAT(past.out, ContainsSubstring(snapshot_name(20) + "': 20 of 40 steps were done"));
}

TEST_CASE("per step: wrong uses are refused, in one line that names the remedy", "[per_step]") {
  struct Row {
    std::vector<std::string> launcher, program;
    std::string words;
  };
  const Row row = GENERATE(
      Row{{"--per-step", "--min-ranks", "3"}, {}, "--min-ranks 3 is more than --nproc-per-node 2"},
      Row{{"--min-ranks", "1"}, {}, "need --per-step"},
      Row{{"--quorum-timeout", "5"}, {}, "need --per-step"},
      Row{{"--per-step", "--max-restarts", "1"}, {}, "leave out --max-restarts"},
      Row{{"--per-step", "--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "h:1"},
          {},
          "--per-step is for one node"},
      Row{{}, {"--per-step"}, "start them with 'ringrun --per-step ...'"},
      Row{{"--per-step"}, {}, "this program does not: give it to both or to neither"},
      Row{{"--per-step"}, {"--per-step", "--save-every", "5"}, "needs --run-dir"},
      Row{{"--per-step"}, {"--per-step", "--resume", "auto"}, "needs --run-dir"},
      Row{{"--per-step"}, {"--per-step", "--global-batch", "8"}, "give --batch"},
      Row{{"--per-step"},
          {"--per-step", "--comm-hook", "fp16"},
          "cannot be combined with --comm-hook"},
      Row{{"--per-step"}, {"--per-step", "--ddp", "plain"}, "cannot be combined with --ddp plain"},
      Row{{"--per-step"},
          {"--per-step", "--check-drift", "1"},
          "cannot be combined with --check-drift"},
      Row{{"--per-step"},
          {"--per-step", "--json"},
          "cannot be combined with --ddp-logging, --json"},
      Row{{"--per-step"},
          {"--per-step", "--report"},
          "cannot be combined with --ddp-logging, --json"},
      Row{{"--per-step"},
          {"--per-step", "--eval-every", "5"},
          "cannot be combined with --eval-every"},
      Row{{"--per-step"}, {"--per-step", "--workers", "1"}, "cannot be combined with --workers"},
      Row{{"--per-step"}, {"--per-step", "--algorithm", "fastest"}, "name the algorithm"},
      Row{{"--per-step"}, {"--per-step", "--bootstrap", "self"}, "meet through ringrun"});
  const TemporaryFolder folder;
  std::vector<std::string> command{kRingrun, "--nproc-per-node", "2"};
  command = command + row.launcher;
  command = command + std::vector<std::string>{"--", RINGSMITH_BINARY_DIR "/bin/train_mlp"};
  command = command + tiny_mlp();
  const ProgramResult result = run_program(command + row.program, 60);
  INFO(result.err);
  CHECK(result.exit_code == static_cast<int>(ExitCode::usage));
  CHECK_THAT(result.err, ContainsSubstring(row.words));
}

TEST_CASE("per step: a rank that stands still is killed, and returns", "[per_step]") {
  // With --min-ranks 4 the other ranks wait until the killed rank returns.
  const std::string least = GENERATE("3", "4");
  CAPTURE(least);
  const TemporaryFolder folder;
  const std::string mark = "RINGSMITH_TEST_MARK=" + std::to_string(getpid());
  std::vector<std::string> command = training(folder / "run", 400, {"--timeout", "3"});
  command.insert(command.begin() + 3, {"--quorum-timeout", "4", "--min-ranks", least});
  command.insert(command.begin(), {"/usr/bin/env", mark});
  Background run(command);
  REQUIRE(eventually([&] { return times_of(read_steps(folder / "run")).size() > 10; }));
  REQUIRE(::kill(process_of(mark, 1), SIGSTOP) == 0);
  const int code = wait_long(run);
  const std::string output = run.output();
  INFO(output);
  CHECK(code == 0);
  CHECK_THAT(output, ContainsSubstring("rank 1 (pid ") &&
                         ContainsSubstring("has been silent for 4 s and is killed"));
  check_agreement(read_steps(folder / "run"), 2000, 16);
}

TEST_CASE("per step: a rank with other options is refused, at the start and when it returns",
          "[per_step]") {
  const TemporaryFolder folder;
  const std::string mark = "RINGSMITH_TEST_MARK=" + std::to_string(getpid());
  // Starts a training run with additional options for rank 1, for all of its processes or from the
  // second one on.
  const auto start = [&](const std::string& run, const std::string& lives,
                         const std::string& more) {
    std::vector<std::string> command = training(folder / run, 1000000, {});
    const auto program = std::ranges::find(command, "--") + 1;
    const std::string script = "if [ $RANK = 1 ]; then " + lives + " && set -- \"$@\" " + more +
                               "; touch '" + (folder / "lived") + "'; fi; exec \"$@\"";
    command.insert(program, {"sh", "-c", script, "sh"});
    command.insert(command.begin(), {"/usr/bin/env", mark});
    return std::make_unique<Background>(command);
  };
  const auto check_refused = [&](Background& run, const std::string& option, const std::string& odd,
                                 const std::string& others) {
    const int code = wait_long(run);
    const std::string output = run.output();
    INFO(output);
    CHECK(code == 6);
    CHECK_THAT(output, ContainsSubstring("train_mlp: error: " + option + " is ") &&
                           ContainsSubstring(odd + " on rank 1") &&
                           ContainsSubstring(others + " on rank ") &&
                           ContainsSubstring(": use the same value on all ranks"));
  };
  check_refused(*start("start", "true", "--lr 0.5"), "--lr", "0.5", "0.05");
  check_refused(*start("draw", "true", "--draw 2001"), "--draw", "2001", "2000");
  std::filesystem::remove(folder / "lived");
  const auto run = start("return", "[ -e '" + (folder / "lived") + "' ]", "--lr 0.5");
  REQUIRE(eventually([&] { return times_of(read_steps(folder / "return")).size() > 10; }));
  REQUIRE(::kill(process_of(mark, 1), SIGKILL) == 0);
  check_refused(*run, "--lr", "0.5", "0.05");
}

TEST_CASE("per step: a program that cannot begin is not started forever", "[per_step]") {
  const ProgramResult result = run_program(
      {kRingrun, "--standalone", "--per-step", "--nproc-per-node", "1", "--", "sh", "-c", "exit 3"},
      60);
  INFO(result.err);
  CHECK(result.exit_code == 3);
  CHECK(count(result.err, "started again as pid") == 4);
  CHECK_THAT(result.err,
             ContainsSubstring("it was lost 5 times in a row without completing a step"));
}

TEST_CASE("per step: a rank that has taken part is never given up, and is named by its number",
          "[per_step]") {
  const TemporaryFolder folder;
  const std::string mark = "RINGSMITH_TEST_MARK=" + std::to_string(getpid());
  std::vector<std::string> command = training(folder / "run", 1'000'000, {});
  command.insert(command.begin(), {"/usr/bin/env", mark});
  Background run(command);
  const auto lines = [&] {
    const std::string text = read_text(folder / "run/steps-rank-1.jsonl");
    return std::count(text.begin(), text.end(), '\n');
  };
  pid_t last = 0;
  for (int kill_number = 0; kill_number < 7; ++kill_number) {
    const auto before = lines();
    REQUIRE(eventually([&] {
      const pid_t pid = process_of(mark, 1);
      return pid > 0 && pid != last && lines() > before + 3;
    }));
    last = process_of(mark, 1);
    REQUIRE(::kill(last, SIGKILL) == 0);
  }
  REQUIRE(eventually([&] { return count(run.output(), "started again as pid") == 7; }));
  kill(run.pid(), SIGTERM);
  CHECK(run.wait() == static_cast<int>(ExitCode::preempted));
  const std::string output = run.output();
  INFO(output);
  // Since its first return, rank 1 has been the last in the quorum.
  const std::regex named("repeated: rank (\\d+) \\(pid");
  int failed = 0;
  for (std::sregex_iterator at(output.begin(), output.end(), named), end; at != end; ++at, ++failed)
    CHECK(at->str(1) == "1");
  CHECK(failed >= 3);
}
