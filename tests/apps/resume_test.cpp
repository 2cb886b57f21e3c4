// Checkpoints of whole runs: a run that goes on from one has the bits of a run that never stopped,
// whatever stopped it; what does not fit is refused in one line.
//
// A few kills in `make test`; `make test-resume` does as many as RINGSMITH_TEST_KILLS says. The
// same RINGSMITH_TEST_SEED kills at the same moments.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <thread>

#include "runtime/checkpoint/manager.hpp"
#include "tests/apps/programs.hpp"
#include "tests/fault/started_by_hand.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/free_port.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
namespace fs = std::filesystem;

namespace {

using Options = std::vector<std::string>;
constexpr int kSteps = 24, kEvery = 7;  // checkpoints at 7, 14, 21 and 24, in several epochs

struct Program {
  std::string name;
  Options options;
};

Program gpt(const TemporaryFolder& folder, const std::string& dropout = "0.2") {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "ring " + std::to_string(i * i) + " steps\n";
  return {"train_gpt",
          {"--data",
           write_text(folder / "text", text),
           "--layers",
           "1",
           "--dim",
           "16",
           "--heads",
           "2",
           "--context",
           "16",
           "--batch",
           "4",
           "--steps",
           std::to_string(kSteps),
           "--dropout",
           dropout,
           "--sample",
           "8",
           "--validation-windows",
           "4",
           "--progress",
           "off"}};
}
Program mlp() {
  return {"train_mlp",
          {"--draw", "200", "--hidden", "8", "--batch", "6", "--steps", std::to_string(kSteps),
           "--progress", "off"}};
}
Options saving(const std::string& run) {
  return {"--run-dir", run, "--save-every", std::to_string(kEvery), "--keep", "9"};
}
std::string checkpoint(const std::string& run, int step) {
  return run + "/checkpoints/" + snapshot_name(step);
}

ProgramResult run(int world, const Program& program, const Options& more) {
  const ProgramResult r = run_app(world == 1 ? 0 : world, program.name, program.options + more);
  INFO(program.name << " on " << world << "\n" << r.out << r.err);
  REQUIRE(r.exit_code == 0);
  return r;
}

// [step] -> loss and learning rate, as they stand in the file.
std::map<int, std::string> metrics(const std::string& folder) {
  std::map<int, std::string> out;
  std::istringstream in(read_text(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(in, line);) {
    const auto m = nlohmann::json::parse(line);
    const bool first = out.emplace(m.at("step"), m.at("loss").dump() + m.at("lr").dump()).second;
    CHECK(first);  // no step twice
  }
  return out;
}

// Model, losses and the last checkpoint: weights, optimizer, random numbers, sampler, all of it.
void check_same(const std::string& expected, const std::string& got, int from) {
  INFO(got << " compared with " << expected);
  REQUIRE(read_text(expected + "/model.safetensors").size() > 1000);
  CHECK(read_text(got + "/model.safetensors") == read_text(expected + "/model.safetensors"));
  const auto all = metrics(expected);
  REQUIRE(all.size() == kSteps);
  CHECK(metrics(got) == std::map<int, std::string>(all.upper_bound(from), all.end()));
  if (from == kSteps) return;  // nothing was left to save
  for (const auto& file : fs::directory_iterator(checkpoint(expected, kSteps))) {
    INFO(file.path());
    CHECK(read_text(file.path()) ==
          read_text(checkpoint(got, kSteps) + "/" + file.path().filename().string()));
  }
}

void check_resumes(int world, const Program& program, const Options& more,
                   const std::vector<int>& from) {
  const TemporaryFolder runs;
  const std::string whole = runs / "whole";
  run(world, program, more + saving(whole));
  for (const int step : from) {
    const std::string resumed = runs / std::to_string(step);
    const auto r =
        run(world, program, more + saving(resumed) + Options{"--resume", checkpoint(whole, step)});
    CHECK_THAT(r.out, ContainsSubstring(fmt::format("{} of {} steps were done", step, kSteps)));
    CHECK(r.out.find("not as before") == std::string::npos);
    check_same(whole, resumed, step);
  }
}

}  // namespace

TEST_CASE("a resumed run has the losses and the bytes of one that never stopped",
          "[programs][resume]") {
  const TemporaryFolder folder;
  for (const int world : {1, 2, 3, 5}) {
    check_resumes(world, gpt(folder), {}, {14});
    if (world % 2 == 1) check_resumes(world, mlp(), {"--no-trace"}, {14});
  }
  check_resumes(3, gpt(folder), {"--transport", "tcp", "--workers", "2"}, {7, 21, 24});
  check_resumes(2, gpt(folder), {"--kernels", "oracle"}, {14});
  // Many buckets, rebuilt after the first step: their order decides the bits of the sums.
  check_resumes(3, gpt(folder), {"--bucket-cap-mb", "0.001", "--overlap", "on"}, {7});
}

TEST_CASE("the same on devices", "[.][on_devices]") {
  const TemporaryFolder folder;
  for (const int world : {1, 2}) check_resumes(world, gpt(folder), {"--device", "cuda"}, {14});
}

TEST_CASE("checkpoints change nothing in a run, and --keep of them stay", "[programs][resume]") {
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
  const Program program = gpt(folder, "0");  // without dropout only the order of sums differs
  const Options shared{"--global-batch", "12"};
  run(2, program, shared + saving(folder / "whole"));
  const auto whole = metrics(folder / "whole");
  for (const int world : {1, 3, 4}) {
    const std::string to = folder / std::to_string(world);
    const auto r = run(world, program,
                       shared + saving(to) + Options{"--resume", checkpoint(folder / "whole", 7)});
    CHECK_THAT(r.out, ContainsSubstring(fmt::format("not as before: ranks {} (was 2);", world)));
    const auto lines = metrics(to);
    REQUIRE(lines.size() == kSteps - 7);
    for (const auto& [step, line] : lines) {
      const double got = std::stod(line), want = std::stod(whole.at(step));
      INFO("step " << step << ": " << got << ", by 2 ranks " << want);
      CHECK(std::abs(got - want) <= 1e-4 * want);
    }
    // And once more with the first number of ranks: samples are dealt back.
    const auto back =
        run(2, program, shared + saving(to + "back") + Options{"--resume", checkpoint(to, 14)});
    CHECK_THAT(back.out, ContainsSubstring(fmt::format("ranks 2 (was {})", world)));
  }
  // Options that may change are named with both values; more steps lengthen the run.
  const auto r = run(3, program,
                     saving(folder / "more") + Options{"--lr", "0.001", "--steps", "30", "--resume",
                                                       checkpoint(folder / "whole", kSteps)});
  CHECK_THAT(r.out, ContainsSubstring("--steps 30 (was 24)") &&
                        ContainsSubstring("ranks 3 (was 2)") &&
                        ContainsSubstring("--lr 0.001 (was 0.003)"));
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

  // As after a kill -9 in step 23 that cut the checkpoint of step 21 short, and a line too.
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
                               "' cannot be used: manifest.json is missing: its writing was cut "
                               "short") &&
                 ContainsSubstring("resumed from '" + checkpoint(to, 14) + "'"));
  check_same(whole, to, 0);

  // Nothing is left to do: the same files again.
  CHECK_THAT(run(2, program, more).out, ContainsSubstring("24 of 24 steps were done"));
  check_same(whole, to, 0);
}

TEST_CASE("what does not fit is refused: one line, the first difference, the remedy",
          "[programs][resume]") {
  const TemporaryFolder folder;
  const Program program = gpt(folder), digits = mlp();
  Program other = program;
  other.options[1] = write_text(folder / "other", std::string(400, 'x'));
  run(1, program, saving(folder / "gpt"));
  run(1, digits, saving(folder / "mlp"));
  const std::string from = checkpoint(folder / "gpt", 14), new_run = folder / "new";
  const auto refuse = [&](int world, const Program& with, const Options& more,
                          const Options& words) {
    const ProgramResult r = run_app(world == 1 ? 0 : world, with.name, with.options + more);
    INFO(with.name << " on " << world << "\n" << r.out << r.err);
    REQUIRE_FALSE(r.timed_out);
    CHECK(r.exit_code == 6);
    const auto said = error_lines(with.name, r.err);
    REQUIRE(said.size() == 1);
    for (const std::string& word : words) CHECK_THAT(said[0], ContainsSubstring(word));
  };
  const Options resume{"--run-dir", new_run, "--resume", from};
  const std::string another = "checkpoint '" + from + "' is of another training: ";
  const std::string remedy = "or start a new run without --resume";
  for (const int world : {1, 3}) {
    refuse(world, program, resume + Options{"--heads", "4"},
           {another + "--heads was 2, here it is 4; ", remedy});
    refuse(world, program, resume + Options{"--dim", "32"},
           {another + "parameter 'blocks.0.", " was f32[", ", here it is f32[32", remedy});
  }
  refuse(1, program, resume + Options{"--layers", "2"},
         {"parameter 'blocks.1.", " was not there, here it is f32["});
  refuse(1, program, resume + Options{"--seed", "1"}, {"--seed was 0, here it is 1"});
  refuse(1, program, resume + Options{"--steps", "13"},
         {"is of step 14, but the run is to have 13: give --steps 14 or more"});
  refuse(1, other, resume,
         {"the training data was ", " bytes with SHA-256 ", "..., here it is 360 bytes with "});
  refuse(1, digits, resume, {"the program was train_gpt, here it is train_mlp"});
  refuse(1, digits,
         {"--run-dir", new_run, "--resume", checkpoint(folder / "mlp", 14), "--draw", "201"},
         {"the training data was "});
  refuse(2, program, {"--run-dir", new_run, "--resume", folder / "gpt"},
         {"manifest.json is missing"});
  refuse(2, program, {"--run-dir", new_run, "--resume", folder / "nowhere"},
         {"nowhere' cannot be used: manifest.json is missing"});
  refuse(2, program, {"--resume", "auto"}, {"--resume auto needs --run-dir"});
  refuse(1, program, {"--run-dir", folder / "gpt", "--resume", from},
         {"is not empty", "--resume auto"});
  run(1, program, {"--run-dir", folder / "plain"});
  refuse(1, program, {"--run-dir", folder / "plain", "--resume", "auto"},
         {"plain' holds no checkpoints", "--save-every"});
  refuse(1, program, {"--save-every", "-1"}, {"--save-every: '-1'"});
  refuse(1, program, {"--keep", "0"}, {"--keep: '0'"});
  // Another job, of this very test, is on the folder.
  {
    const CheckpointManager holder(folder / "gpt/checkpoints");
    refuse(2, program, {"--run-dir", folder / "gpt", "--resume", "auto"},
           {"gpt/checkpoints' are in use by another job (pid " + std::to_string(getpid())});
  }
  // Nothing of all this has stood in the way of the right options.
  run(1, program, resume + Options{"--save-every", "7"});
  CHECK(read_text(new_run + "/model.safetensors") == read_text(folder / "gpt/model.safetensors"));
}

TEST_CASE("ranks that do not share the folder: rank 0 sends what it reads, and others' are told",
          "[programs][resume]") {
  const TemporaryFolder folder;
  const Program program = mlp();
  const Options more = saving("run") + Options{"--resume", "auto"};
  // Rank r in the folder r, where "run" is another one for each.
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

  fs::rename(folder.path / "0/run", folder.path / "1/run");  // rank 0 came to the other host
  const auto told = apart();
  CHECK(told.exit_code == 6);
  const auto lines = error_lines("train_mlp", told.err);
  INFO(told.err);
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0], ContainsSubstring("'run/checkpoints' is not one folder for all ranks: the "
                                         "newest checkpoint in it is step-000024 on rank 1 (") &&
                           ContainsSubstring("but no checkpoint on rank 0 ("));
}

TEST_CASE("a checkpoint that cannot be written stops all ranks, with one line",
          "[programs][resume]") {
  constexpr int kOften = 300;  // steps, of less than a millisecond
  const TemporaryFolder folder;
  // The shell does `first`, then the program trains until it is stopped.
  const auto train = [&](int world, const std::string& run, const std::string& first,
                         const Options& prefix = {}) {
    fs::create_directories(run + "/checkpoints");
    std::string command = first + " exec " RINGSMITH_SOURCE_DIR "/tests/support/mpirun.sh " +
                          std::to_string(world) + " " RINGSMITH_BINARY_DIR "/bin/train_mlp";
    for (const std::string& o :
         mlp().options + Options{"--steps", "10000000", "--no-trace", "--hidden", "64",
                                 "--save-every", std::to_string(kOften), "--keep", "100",
                                 "--run-dir", run})
      command += " '" + o + "'";
    return run_program(prefix + Options{"sh", "-c", command}, 60);
  };
  const auto check_stopped = [&](const ProgramResult& r, const std::string& run,
                                 const std::string& reason) {
    INFO(r.out << r.err);
    REQUIRE_FALSE(r.timed_out);
    CHECK(r.exit_code == 1);
    const auto lines = error_lines("train_mlp", r.err);
    REQUIRE(lines.size() == 1);
    CHECK_THAT(lines[0], ContainsSubstring("cannot write '" + run + "/checkpoints/step-") &&
                             ContainsSubstring(reason + "; training has stopped after step ") &&
                             ContainsSubstring("--resume auto"));
    const auto number_after = [&](const std::string& words) {
      return std::stoi(lines[0].substr(lines[0].find(words) + words.size()));
    };
    // Told at the next step, not only when the next checkpoint is due.
    CHECK(number_after("stopped after step ") < number_after("checkpoints/step-") + kOften);
  };
  for (const int world : {1, 3}) {
    const std::string run = folder / ("gone" + std::to_string(world));
    const std::string saved = "'" + run + "/checkpoints'";
    const auto r = train(world, run,
                         "(until [ -e " + saved +
                             "/step-000300/manifest.json ]; do sleep 0.1; "
                             "done; mv " +
                             saved + " '" + run + "/moved') &");
    check_stopped(r, run, "No such file or directory");
  }
  for (const int world : {1, 3}) {
    const std::string run = folder / ("full" + std::to_string(world));
    fs::create_directories(run + "/checkpoints");
    const std::string mount = "mount -t tmpfs -o size=2m none '" + run + "/checkpoints' &&";
    if (run_program({"unshare", "-rm", "sh", "-c", mount + " true"}, 10).exit_code != 0) {
      WARN("skipped: this user may not mount a small file system");
      return;
    }
    const auto r = train(world, run, mount, {"unshare", "-rm"});
    check_stopped(r, run, "No space left on device");
  }
}

// ---- kill -9 ----

namespace {

long from_environment(const char* name, long otherwise) {
  const std::string text = variable(name);
  return text.empty() ? otherwise : std::stol(text);
}

// Ranks without a launcher, so that any of them can be killed at any moment.
class Ranks {
 public:
  Ranks(int world, const Program& program, const Options& more, const std::string& log) {
    const std::string port = free_port();
    for (int rank = 0; rank < world; ++rank) {
      pids_.push_back(fork());
      if (pids_.back() != 0) continue;
      test::look_started_by_hand(rank, world, port);
      const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
      dup2(file, STDOUT_FILENO);
      dup2(file, STDERR_FILENO);
      const Options all = program.options + more;
      const std::string path = RINGSMITH_BINARY_DIR "/bin/" + program.name;
      std::vector<char*> argv{const_cast<char*>(path.c_str())};
      for (const std::string& o : all) argv.push_back(const_cast<char*>(o.c_str()));
      argv.push_back(nullptr);
      execv(path.c_str(), argv.data());
      _exit(127);
    }
  }
  static constexpr double kForever = 1e6;  // seconds
  ~Ranks() {
    kill();
    (void)wait(kForever);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void kill(int only = -1) const {
    for (std::size_t r = 0; r < pids_.size(); ++r)
      if (pids_[r] > 0 && (only < 0 || static_cast<std::size_t>(only) == r))
        ::kill(pids_[r], SIGKILL);
  }
  // True if all have ended by then; ended_well() if all of them well.
  bool wait(double seconds) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    for (pid_t& pid : pids_)
      while (pid > 0) {
        int status = 0;
        const bool ended = waitpid(pid, &status, WNOHANG) == pid;
        if (ended) {
          pid = 0;
          well_ = well_ && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        } else if (Clock::now() > end) {
          return false;
        } else {
          std::this_thread::sleep_for(std::chrono::microseconds(500));
        }
      }
    return true;
  }
  [[nodiscard]] bool ended_well() const { return well_; }

 private:
  std::vector<pid_t> pids_;
  bool well_ = true;
};

}  // namespace

TEST_CASE("kill -9 at random moments: --resume auto ends with the bits of the undisturbed run",
          "[resume][resume_kills]") {
  constexpr long kFew = 6;
  constexpr int kMostInARun = 8;
  const long kills = from_environment("RINGSMITH_TEST_KILLS", kFew);
  const auto seed = static_cast<std::uint32_t>(
      from_environment("RINGSMITH_TEST_SEED", static_cast<long>(std::random_device()())));
  std::mt19937 random(seed);
  const TemporaryFolder folder;
  const Program program = gpt(folder);
  const Options every{"--save-every", "2", "--keep", "2", "--timeout", "20", "--no-trace"};
  std::map<int, double> seconds;  // of a run that nobody disturbs
  const auto undisturbed = [&](int world) {
    const std::string run_dir = folder / ("whole" + std::to_string(world));
    if (seconds.count(world) == 0) {
      const auto begin = std::chrono::steady_clock::now();
      Ranks ranks(world, program, every + Options{"--run-dir", run_dir}, folder / "log");
      INFO(read_text(folder / "log"));
      REQUIRE(ranks.wait(60));
      REQUIRE(ranks.ended_well());
      seconds[world] =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    return run_dir;
  };
  long killed = 0, runs = 0, resumed = 0, torn = 0;
  for (; killed < kills; ++runs) {
    const int world = 1 + static_cast<int>(random() % 3);
    const std::string whole = undisturbed(world), to = folder / ("run" + std::to_string(runs));
    const Options more = every + Options{"--run-dir", to, "--resume", "auto"};
    bool done = false;
    for (int kill_number = 0; !done; ++kill_number) {
      const std::string log = folder / fmt::format("log{}-{}", runs, kill_number);
      INFO("RINGSMITH_TEST_SEED=" << seed << ", run " << runs << " of " << world << " ranks");
      Ranks ranks(world, program, more, log);
      const double moment = seconds.at(world) * 1.1 * static_cast<double>(random() % 1000) / 1000;
      const int victim = random() % 3 == 0 ? static_cast<int>(random() % unsigned(world)) : -1;
      if (kill_number < kMostInARun && killed < kills && !ranks.wait(moment)) {
        ranks.kill(victim);
        ++killed;
        if (!ranks.wait(3)) ranks.kill();  // they wait for one that never came, as --timeout says
      }
      const bool ended = ranks.wait(60);
      const std::string said = read_text(log);
      INFO(said);
      REQUIRE(ended);
      done = ranks.ended_well();
      if (kill_number == kMostInARun) REQUIRE(done);
      resumed += said.find("resumed from") != std::string::npos ? 1 : 0;
      torn += said.find("skipped:") != std::string::npos ? 1 : 0;
    }
    CHECK(read_text(to + "/model.safetensors") == read_text(whole + "/model.safetensors"));
    CHECK(metrics(to) == metrics(whole));
    check_same(whole, to, 0);
    CHECK(list_snapshots(to + "/checkpoints").size() == 2);
    fs::remove_all(to);
  }
  if (kills > kFew)
    std::printf("%ld kills of %ld runs, seed %u: %ld resumed, %ld past a torn checkpoint\n", killed,
                runs, seed, resumed, torn);
}
