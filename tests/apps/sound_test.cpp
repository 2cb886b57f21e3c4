// A diverged run must not overwrite a good checkpoint or model. A run that skips most steps must
// fail.
#include <algorithm>

#include "tests/apps/resume_runs.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
namespace fs = std::filesystem;

namespace {

std::vector<std::int64_t> steps_in(const std::string& run) {
  std::vector<std::int64_t> out;
  for (const auto& [step, path] : list_snapshots(run + "/checkpoints")) out.push_back(step);
  return out;
}

void change(const std::string& checkpoint, const std::function<void(Snapshot&)>& how) {
  Snapshot snapshot = read_snapshot(checkpoint);
  how(snapshot);
  write_snapshot(checkpoint, snapshot);
}

// The program must exit with code 1, write no model and print one line, which is returned.
std::string failure(int world, const Program& program, const Options& more,
                    const std::string& run_dir) {
  const TemporaryFolder logs;
  Ranks ranks(world, program, more + Options{"--run-dir", run_dir}, logs / "log");
  const ProgramResult r = result_of(ranks, logs / "log");
  INFO(program.name << " on " << world << "\n" << r.out << r.err);
  REQUIRE_FALSE(r.timed_out);
  CHECK(r.exit_code == 1);
  CHECK(std::ranges::count(r.err, '\n') == 1);
  CHECK_FALSE(fs::exists(run_dir + "/model.safetensors"));
  return r.err;
}

Program f16_mlp() {
  Program out = mlp();
  out.options = out.options + Options{"--amp", "f16"};
  return out;
}

}  // namespace

TEST_CASE("NaN after the last update: one line, exit code 1, no model, no checkpoint",
          "[programs]") {
  const TemporaryFolder folder;
  for (const int world : {1, 3})
    for (const Program& program : {gpt(folder), mlp()}) {
      const std::string run_dir = folder / (program.name + std::to_string(world));
      CHECK_THAT(
          failure(world, program, {"--steps", "1", "--lr", "1e30", "--save-every", "1"}, run_dir),
          ContainsSubstring("the loss on the held-out data is ") &&
              ContainsSubstring("no model was written: try a smaller --lr"));
      CHECK(steps_in(run_dir).empty());
    }
}

TEST_CASE("a run that diverges keeps its last good checkpoint, from which --resume auto continues",
          "[programs][resume]") {
  const TemporaryFolder folder;
  for (const int world : {1, 2})
    for (const Program& program : {mlp(), gpt(folder, "0")}) {
      INFO(program.name << ", " << world << " ranks");
      const std::string to = folder / (program.name + std::to_string(world));
      const Options keep_one{"--save-every", "1", "--keep",   "1",
                             "--run-dir",    to,  "--resume", "auto"};
      (void)failure(world, program, {"--lr", "1e30", "--save-every", "1", "--keep", "1"}, to);
      CHECK(steps_in(to).empty());
      CHECK_THAT(run(world, program, keep_one + Options{"--steps", "9"}).out,
                 ContainsSubstring("training starts from the beginning"));
      CHECK(steps_in(to) == std::vector<std::int64_t>{9});
      // The run diverges in step 10, which only the loss of step 11 shows.
      fs::remove(to + "/model.safetensors");
      (void)failure(world, program,
                    {"--lr", "1e30", "--save-every", "1", "--keep", "1", "--resume", "auto"}, to);
      CHECK(steps_in(to) == std::vector<std::int64_t>{9});
      CHECK_THAT(run(world, program, keep_one).out,
                 ContainsSubstring("resumed from '" + checkpoint(to, 9) + "'"));
      CHECK(steps_in(to) == std::vector<std::int64_t>{kSteps});
    }
}

TEST_CASE("--resume auto goes past checkpoints that cannot be trained from, a line for each",
          "[programs][resume]") {
  const TemporaryFolder folder;
  const Program program = gpt(folder);
  for (const int world : {1, 2}) {
    const std::string whole = folder / ("whole" + std::to_string(world)),
                      to = folder / ("run" + std::to_string(world));
    run(world, program, saving(whole));
    fs::copy(whole, to, fs::copy_options::recursive);
    const auto says = [](int step, const std::string& fault) {
      return ContainsSubstring("checkpoints/" + snapshot_name(step) + "' cannot be used: " + fault);
    };
    change(checkpoint(to, 24),
           [](Snapshot& s) { s.tensors.at("model").begin()->second.data<float>()[3] = NAN; });
    change(checkpoint(to, 21), [](Snapshot& s) {  // finite, but the loss is not
      for (const auto& [name, tensor] : s.tensors.at("model")) tensor.fill_(3e38);
    });
    change(checkpoint(to, 14),
           [](Snapshot& s) { s.tensors.at("optimizer").at("state.0.step").fill_(-1); });
    fs::remove(to + "/model.safetensors");
    const auto of_nan = says(24, "model.safetensors holds NaN or an infinity in '"),
               huge = says(21, "the loss of the next step, 22, is "),
               count = says(14, "optimizer state: 'state.0.step' is -1");
    const auto resumed = run(world, program, saving(to) + Options{"--resume", "auto"});
    CHECK_THAT(resumed.out, of_nan && huge && count &&
                                ContainsSubstring("resumed from '" + checkpoint(to, 7) + "'"));
    check_same(whole, to, 0);

    // A bad checkpoint given by name is refused. If there is no good checkpoint, none is
    // overwritten.
    for (const auto& [step, fault] : {std::pair(24, of_nan), std::pair(21, huge)}) {
      change(checkpoint(to, step), [step = step](Snapshot& s) {  // clang 14 captures no bindings
        for (const auto& [name, tensor] : s.tensors.at("model"))
          tensor.fill_(step == 24 ? NAN : 3e38);
      });
      const TemporaryFolder logs;
      Ranks ranks(world, program, {"--run-dir", folder / "new", "--resume", checkpoint(to, step)},
                  logs / "log");
      const ProgramResult r = result_of(ranks, logs / "log");
      CHECK(r.exit_code == 6);
      CHECK(std::ranges::count(r.err, '\n') == 1);
      CHECK_THAT(r.err, fault && ContainsSubstring("; continue "));
    }
    for (const int step : {7, 14}) fs::remove_all(checkpoint(to, step));
    const TemporaryFolder logs;
    Ranks ranks(world, program, saving(to) + Options{"--resume", "auto"}, logs / "log");
    const ProgramResult r = result_of(ranks, logs / "log");
    INFO(r.out << r.err);
    CHECK(r.exit_code == 6);
    CHECK(std::ranges::count(r.err, '\n') == 1);
    CHECK_THAT(r.err, of_nan && ContainsSubstring("no other checkpoint can be used"));
    CHECK(steps_in(to) == std::vector<std::int64_t>{21, 24});
  }
}

TEST_CASE("an overflow poisons no communication hook: training in f16 goes on, and learns",
          "[programs]") {
  const TemporaryFolder folder;
  for (const char* hook : {"none", "powersgd", "fp16"}) {
    const std::string to = folder / hook;
    const auto r = run_app(
        2, "train_mlp",
        {"--draw", "600", "--hidden", "64", "--batch", "1", "--steps", "150", "--lr", "0.02",
         "--amp", "f16", "--comm-hook", hook, "--progress", "off", "--json", "--run-dir", to});
    INFO(hook << "\n" << r.out << r.err);
    REQUIRE(r.exit_code == 0);
    const auto report = nlohmann::json::parse(r.out);
    REQUIRE(report.contains("skipped_steps"));
    CHECK(report.at("skipped_steps") < 30);
  }
}

TEST_CASE("a run whose steps are mostly skipped fails, over all its processes",
          "[programs][resume]") {
  const TemporaryFolder folder;
  const Program program = f16_mlp();
  for (const int world : {1, 2}) {
    const std::string whole = folder / ("whole" + std::to_string(world));
    run(world, program, saving(whole));
    change(checkpoint(whole, kSteps),
           [](Snapshot& s) { s.tensors.at("scaler").at("scale").fill_(1e38); });
    const auto longer = [&](int steps) {
      return Options{"--steps", std::to_string(steps), "--resume", checkpoint(whole, kSteps)};
    };
    const auto before = nlohmann::json::parse(
        run(world, program, longer(kSteps) + Options{"--json", "--run-dir", whole + "-0"}).out);
    const int skipped = before.value("skipped_steps", 0), made = kSteps - skipped;
    const auto most =
        run(world, program, longer(kSteps + made - skipped) + Options{"--run-dir", whole + "-1"});
    CHECK_THAT(most.out, ContainsSubstring(" steps, whose gradients were infinite or NaN"));
    const int steps = kSteps + made - skipped + 1;
    CHECK_THAT(failure(world, program, longer(steps), whole + "-2"),
               ContainsSubstring(std::to_string(made + 1) + " of " + std::to_string(steps) +
                                 " steps were skipped, because gradients were infinite or NaN") &&
                   ContainsSubstring("try --amp bf16"));
  }
}
