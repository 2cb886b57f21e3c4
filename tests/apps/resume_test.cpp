// A resumed run has the bits of a run that never stopped, no matter how it was stopped.
//
// `make test-resume` kills 200 runs, other commands RINGSMITH_TEST_KILLS (6 by default). With the
// same RINGSMITH_TEST_SEED, runs are killed at the same fractions of their duration.
#include <cstdio>
#include <fmt/format.h>
#include <random>

#include "runtime/base/error.hpp"
#include "tests/apps/resume_runs.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
namespace fs = std::filesystem;

namespace {

void check_resumes(int world, const Program& program, const Options& more,
                   const std::vector<int>& from) {
  const TemporaryFolder runs;
  const std::string whole = runs / "whole";
  run(world, program, saving(whole) + more);
  for (const int step : from) {
    const std::string resumed = runs / std::to_string(step);
    const auto r =
        run(world, program, saving(resumed) + more + Options{"--resume", checkpoint(whole, step)});
    CHECK_THAT(r.out, ContainsSubstring(fmt::format("{} of {} steps were done", step, kSteps)));
    CHECK(r.out.find("changed: ") == std::string::npos);
    check_same(whole, resumed, step);
  }
}

}  // namespace

TEST_CASE("a resumed run has the losses and the bytes of one that never stopped",
          "[programs][resume]") {
  const TemporaryFolder folder;
  for (const int world : {1, 2, 3, 5}) {
    check_resumes(world, gpt(folder), {}, {14});
    if (world < 5) check_resumes(world, cnn(), {}, {14});
    if (world % 2 == 1) check_resumes(world, mlp(), {"--no-trace"}, {14});
  }
  check_resumes(3, gpt(folder), {"--transport", "tcp", "--workers", "2"}, {7, 21, 24});
  check_resumes(2, gpt(folder), {"--kernels", "oracle"}, {14});
  // The order of the buckets, which are rebuilt after the first step, determines the bits of the
  // sums.
  check_resumes(
      3, gpt(folder),
      {"--bucket-cap-mb", "0.001", "--overlap", "on", "--save-every", "1", "--keep", "30"},
      {1, 2, 7});
  // Epochs have 5 + 5 + 5 + 1 batches. After resuming, an epoch must still end with the short step.
  check_resumes(2, mlp(), {"--accumulate", "5"}, {7, 14});
  check_resumes(2, gpt(folder),
                {"--accumulate", "2", "--comm-hook", "fp16", "--activation-checkpointing"}, {7});
  check_resumes(2, gpt(folder), {"--amp", "f16", "--accumulate", "2", "--activation-checkpointing"},
                {14});
  check_resumes(2, cnn(), {"--amp", "f16", "--accumulate", "2", "--workers", "2"}, {7});
}

TEST_CASE("the same on devices", "[.][on_devices]") {
  const TemporaryFolder folder;
  for (const int world : {1, 2})
    for (const Program& program : {gpt(folder), cnn()})
      check_resumes(world, program, {"--device", "cuda"}, {14});
}

TEST_CASE("checkpoints change nothing in a run, and --keep of them stay",
          "[programs][resume][quick]") {
  const TemporaryFolder folder;
  run(2, mlp(), {"--run-dir", folder / "without"});
  const auto r = run(2, mlp(), {"--run-dir", folder / "with", "--save-every", "5", "--keep", "2"});
  CHECK(read_text(folder / "with/model.safetensors") ==
        read_text(folder / "without/model.safetensors"));
  CHECK_FALSE(fs::exists(folder / "without/checkpoints"));
  const auto left = list_snapshots(folder / "with/checkpoints");
  REQUIRE(left.size() == 2);
  CHECK(left[0].first == 20);
  CHECK(left[1].first == kSteps);
}

TEST_CASE("another number of ranks goes on with the same samples, and says so",
          "[programs][resume]") {
  const TemporaryFolder folder;
  const Program program = gpt(folder, "0");  // without dropout, only the order of sums differs
  const Options shared{"--global-batch", "12"};
  run(2, program, shared + saving(folder / "whole"));
  const auto whole = metrics(folder / "whole");
  for (const int world : {1, 3, 4}) {
    const std::string to = folder / std::to_string(world);
    const auto r = run(world, program,
                       shared + saving(to) + Options{"--resume", checkpoint(folder / "whole", 7)});
    CHECK_THAT(r.out, ContainsSubstring(fmt::format("changed: ranks {} (was 2);", world)));
    const auto lines = metrics(to);
    REQUIRE(lines.size() == kSteps - 7);
    for (const auto& [step, line] : lines) {
      const double got = std::stod(line), want = std::stod(whole.at(step));
      INFO("step " << step << ": " << got << ", by 2 ranks " << want);
      CHECK(std::abs(got - want) <= 1e-4 * want);
    }
    const auto back =
        run(2, program, shared + saving(to + "back") + Options{"--resume", checkpoint(to, 14)});
    CHECK_THAT(back.out, ContainsSubstring(fmt::format("ranks 2 (was {})", world)));
  }
  const auto r =
      run(3, program,
          saving(folder / "more") + Options{"--lr", "0.001", "--steps", "30", "--accumulate", "2",
                                            "--comm-hook", "powersgd", "--resume",
                                            checkpoint(folder / "whole", kSteps)});
  CHECK_THAT(r.out, ContainsSubstring("--steps 30 (was 24)") &&
                        ContainsSubstring("ranks 3 (was 2)") &&
                        ContainsSubstring("--lr 0.001 (was 0.003)") &&
                        ContainsSubstring("--accumulate 2 (was 1)") &&
                        ContainsSubstring("--comm-hook powersgd (was none)") &&
                        ContainsSubstring("powersgd restarts with 10 steps of plain "));
  CHECK(metrics(folder / "more").size() == 6);
}

TEST_CASE("auto goes on from the start, from the newest, past a torn one, and at the end",
          "[programs][resume]") {
  const TemporaryFolder folder;
  const Program program = gpt(folder);
  const std::string whole = folder / "whole", to = folder / "run";
  const Options more = saving(to) + Options{"--resume", "auto"};
  run(2, program, saving(whole));
  CHECK_THAT(run(2, program, more).out, ContainsSubstring("no checkpoint in '" + to + "'"));
  check_same(whole, to, 0);

  // Creates the files that a kill -9 in step 23 would leave if it interrupted the writing of step
  // 21's checkpoint and of a line of the metrics.
  fs::remove_all(checkpoint(to, kSteps));
  fs::remove(checkpoint(to, 21) + "/manifest.json");
  fs::remove(to + "/model.safetensors");
  std::istringstream lines(read_text(to + "/metrics.jsonl"));
  std::string cut;
  for (int i = 0; i < 23; ++i) {
    std::string line;
    std::getline(lines, line);
    cut += i < 22 ? line + "\n" : line.substr(0, 20);
  }
  write_text(to + "/metrics.jsonl", cut);
  const auto resumed = run(2, program, more);
  CHECK_THAT(resumed.out,
             ContainsSubstring("skipped: checkpoint '" + checkpoint(to, 21) +
                               "' cannot be used: manifest.json is missing: writing it was "
                               "interrupted") &&
                 ContainsSubstring("resumed from '" + checkpoint(to, 14) + "'"));
  check_same(whole, to, 0);

  CHECK_THAT(run(2, program, more).out, ContainsSubstring("24 of 24 steps were done"));
  check_same(whole, to, 0);
}

TEST_CASE("ranks that do not share the folder: rank 0 sends what it reads, and others' are told",
          "[programs][resume]") {
  const TemporaryFolder folder;
  const Program program = mlp();
  const Options more = saving("run") + Options{"--resume", "auto"};
  // Rank r runs in folder r, so that "run" is a different folder on each rank.
  const auto apart = [&] {
    std::string command = "cd '" + folder.path.string() + "'/$OMPI_COMM_WORLD_RANK && exec " +
                          RINGSMITH_BINARY_DIR "/bin/train_mlp";
    for (const std::string& o : program.options + more) command += " " + o;
    return run_program({RINGSMITH_SOURCE_DIR "/tests/support/mpirun.sh", "2", "sh", "-c", command},
                       60);
  };
  for (const char* rank : {"0", "1"}) fs::create_directory(folder.path / rank);
  run(2, program, saving(folder / "whole"));
  REQUIRE(apart().exit_code == 0);
  REQUIRE(fs::exists(folder / "0/run"));
  REQUIRE_FALSE(fs::exists(folder / "1/run"));
  for (const int step : {21, kSteps}) fs::remove_all(checkpoint(folder / "0/run", step));
  const auto r = apart();
  CHECK_THAT(r.out, ContainsSubstring("14 of 24 steps were done"));
  check_same(folder / "whole", folder / "0/run", 0);

  fs::rename(folder.path / "0/run", folder.path / "1/run");  // rank 0 moved to the other host
  const auto told = apart();
  CHECK(told.exit_code == 6);
  const auto lines = error_lines("train_mlp", told.err);
  INFO(told.err);
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0], ContainsSubstring("'run/checkpoints' is not the same folder on all ranks: "
                                         "its newest checkpoint is step-000024 on rank 1 (") &&
                           ContainsSubstring("but no checkpoint on rank 0 ("));
}

// ---- kill -9 ----

namespace {

std::int64_t newest_whole(const std::string& checkpoints) {
  for (auto all = list_snapshots(checkpoints); !all.empty(); all.pop_back()) try {
      return read_snapshot(all.back().second).step;
    } catch (const UsageError&) {
      continue;
    }
  return 0;
}

}  // namespace

TEST_CASE("kill -9 at random moments: --resume auto ends with the bits of the undisturbed run",
          "[resume][resume_kills][quick]") {
  constexpr long kFew = 6;
  constexpr int kMostInARun = 8;
  const long kills = from_environment("RINGSMITH_TEST_KILLS", kFew);
  const auto seed = static_cast<std::uint32_t>(
      from_environment("RINGSMITH_TEST_SEED", static_cast<long>(std::random_device()())));
  std::mt19937 random(seed);
  const TemporaryFolder folder;
  const Program program = gpt(folder);
  const Options every{"--save-every", "2", "--keep", "2", "--timeout", "20", "--no-trace"};
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  std::map<int, double> seconds;  // of the last undisturbed run
  const auto undisturbed = [&](int world) {
    const std::string run_dir = folder / ("whole" + std::to_string(world));
    if (seconds.count(world) == 0) {
      const auto begin = Clock::now();
      Ranks ranks(world, program, every + Options{"--run-dir", run_dir}, folder / "log");
      const bool ended = ranks.wait(60);
      INFO(read_text(folder / "log") << read_text(folder / "log.err"));
      REQUIRE(ended);
      REQUIRE(ranks.all_ended_with(0));
      seconds[world] = since(begin);
    }
    return run_dir;
  };
  long killed = 0, runs = 0, resumed = 0, torn = 0;
  for (; killed < kills; ++runs) {
    const int world = 1 + static_cast<int>(random() % 3);
    const std::string whole = undisturbed(world), to = folder / ("run" + std::to_string(runs));
    const Options more = every + Options{"--run-dir", to, "--resume", "auto"};
    std::int64_t newest = 0;
    bool done = false;
    std::string said;
    for (int kill_number = 0; !done; ++kill_number) {
      const std::string log = folder / fmt::format("log{}-{}", runs, kill_number);
      INFO("RINGSMITH_TEST_SEED=" << seed << ", run " << runs << " of " << world << " ranks");
      const auto begin = Clock::now();
      Ranks ranks(world, program, more, log);
      const double moment = seconds.at(world) * 1.1 * static_cast<double>(random() % 1000) / 1000;
      const int victim = random() % 3 == 0 ? static_cast<int>(random() % unsigned(world)) : -1;
      if (kill_number < kMostInARun && killed < kills && !ranks.wait(moment)) {
        ranks.kill(victim);
        ++killed;
        // Survivors wait until --timeout for a rank that never arrived.
        if (!ranks.wait(3)) ranks.kill();
      }
      const bool ended = ranks.wait(60);
      said = read_text(log);
      INFO(said << read_text(log + ".err"));
      REQUIRE(ended);
      done = ranks.all_ended_with(0);
      if (done && kill_number == 0) seconds[world] = since(begin);
      if (kill_number == kMostInARun) REQUIRE(done);
      if (said.find("resumed from") != std::string::npos) {
        ++resumed;
        CHECK_THAT(said, ContainsSubstring("'" + checkpoint(to, static_cast<int>(newest)) + "'"));
      }
      torn += said.find("skipped:") != std::string::npos ? 1 : 0;
      const std::int64_t now = newest_whole(to + "/checkpoints");
      CHECK(now >= newest);
      newest = now;
    }
    check_same(whole, to, 0);
    // After a kill between the last write and the removal of the oldest checkpoint, three are left.
    const bool nothing_to_do = said.find("24 of 24 steps were done") != std::string::npos;
    const std::size_t left = list_snapshots(to + "/checkpoints").size();
    CHECK((left == 2 || (nothing_to_do && left == 3)));
    fs::remove_all(to);
  }
  if (kills > kFew)
    std::printf("%ld kills of %ld runs, seed %u: %ld resumed, %ld past a torn checkpoint\n", killed,
                runs, seed, resumed, torn);
}
