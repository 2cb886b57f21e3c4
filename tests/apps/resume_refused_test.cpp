// Tests wrong uses of checkpoints, and checkpoints that cannot be written.
#include <functional>
#include <memory>
#include <span>

#include "runtime/checkpoint/manager.hpp"
#include "runtime/checkpoint/sha256.hpp"
#include "tests/apps/resume_runs.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
namespace fs = std::filesystem;

namespace {

struct WrongUse {
  std::string name;
  Program program;
  Options options;
  std::vector<std::string> says;  // parts of the line
};

// Every rank must exit with the code for wrong usage. One rank must print the line, or each rank if
// all refuse. The uses run concurrently because a refused rank gives rank 0 two seconds for
// its message.
void check_refused(int world, const std::vector<WrongUse>& uses) {
  constexpr std::size_t kAtOnce = 16;
  for (std::size_t first = 0; first < uses.size(); first += kAtOnce) {
    const TemporaryFolder logs;
    const auto some = std::span(uses).subspan(first, std::min(kAtOnce, uses.size() - first));
    std::vector<std::unique_ptr<Ranks>> started;
    for (const WrongUse& use : some)
      started.push_back(std::make_unique<Ranks>(world, use.program, use.options, logs / use.name));
    for (std::size_t i = 0; i < some.size(); ++i) {
      const WrongUse& use = some[i];
      const ProgramResult r = result_of(*started[i], logs / use.name);
      INFO(use.name << ", " << world << " ranks\n" << r.out << r.err);
      CHECK_FALSE(r.timed_out);
      CHECK(r.exit_code == 6);
      CHECK(r.err.rfind(use.program.name + ": error: ", 0) == 0);
      const auto lines = std::ranges::count(r.err, '\n');
      CHECK((lines == 1 || lines == world));
      const std::string line = r.err.substr(0, r.err.find('\n') + 1);
      for (std::size_t at = 0; at < r.err.size(); at += line.size())
        CHECK(r.err.substr(at, line.size()) == line);
      for (const std::string& part : use.says) CHECK_THAT(r.err, ContainsSubstring(part));
    }
  }
}

// Writes a changed copy of a checkpoint to `to`, and returns `to`.
std::string changed(const std::string& from, const std::string& to,
                    const std::function<void(Snapshot&)>& change) {
  Snapshot snapshot = read_snapshot(from);
  change(snapshot);
  fs::create_directories(fs::path(to).parent_path());
  write_snapshot(to, snapshot);
  return to;
}

// Changes the manifest as if a later version had written the checkpoint, with correct digests.
void make_newer(const std::string& checkpoint) {
  const std::string path = checkpoint + "/manifest.json";
  std::string text = read_text(path);
  text.replace(text.find("snapshot 1"), 10, "snapshot 2");
  text.resize(text.rfind(" \"sha256\""));
  write_text(path, text + " \"sha256\": \"" + sha256(std::as_bytes(std::span(text))) + "\"\n}\n");
}

}  // namespace

TEST_CASE("wrong uses of checkpoints: one line, the first difference, the remedy",
          "[programs][resume]") {
  const TemporaryFolder folder;
  fs::permissions(folder.path, fs::perms(0755));  // so that the user "nobody" can read it
  const Program text = gpt(folder), digits = mlp(), images = cnn();
  Program other_text = text, nobody = digits;
  other_text.options[1] = write_text(folder / "other", std::string(400, 'x'));
  nobody.as_nobody = true;
  run(1, text, saving(folder / "gpt"));
  run(1, digits, saving(folder / "mlp"));
  run(1, images, saving(folder / "cnn"));
  run(1, digits, {"--run-dir", folder / "plain"});
  const std::string from = checkpoint(folder / "gpt", 14), new_run = folder / "new",
                    of_mlp = checkpoint(folder / "mlp", 14);
  const auto nothing = [](Snapshot&) {};

  const std::string sgd = changed(from, folder / "sgd", [&](Snapshot& s) {
    s.tensors.at("optimizer") = read_snapshot(of_mlp).tensors.at("optimizer");
  });
  const std::string cut = changed(from, checkpoint(folder / "cut", 14), nothing);
  fs::resize_file(cut + "/optimizer.safetensors", 4096);
  changed(from, checkpoint(folder / "cut", 7), nothing);
  const std::string bent = changed(from, folder / "bent", nothing);
  std::string bytes = read_text(bent + "/model.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_text(bent + "/model.safetensors", bytes);
  const std::string unfinished = changed(from, folder / "un/step-000014", nothing);
  fs::remove(unfinished + "/manifest.json");
  const std::string newer = changed(from, checkpoint(folder / "newer", 14), nothing);
  make_newer(newer);
  const std::string closed = folder / "closed";
  fs::create_directories(closed + "/checkpoints");
  fs::permissions(closed, fs::perms(0777));
  fs::permissions(closed + "/checkpoints", fs::perms(0555));
  const std::string busy = folder / "busy";
  fs::create_directories(busy);
  const CheckpointManager holder(busy + "/checkpoints");

  int runs = 0;
  const auto resume = [&](const std::string& path, const Options& more = {}) {
    return Options{"--run-dir", new_run + std::to_string(runs++), "--resume", path} + more;
  };
  const auto automatic = [](const std::string& run_dir) {
    return Options{"--run-dir", run_dir, "--resume", "auto"};
  };
  const std::string another = "checkpoint '" + from + "' is from a different training run: ";
  const std::string fresh = "; use the old value, or start a new run without --resume";
  const std::string takes = "; --resume takes a folder step-NUMBER that a run with --save-every";
  const std::vector<WrongUse> uses = {
      {"another model: a shape",
       text,
       resume(from, {"--dim", "32"}),
       {another + "parameter 'blocks.0.", " was f32[", ", but is f32[32", fresh}},
      {"another model: a layer more",
       text,
       resume(from, {"--layers", "2"}),
       {"parameter 'blocks.1.", " was not there, but is f32[", fresh}},
      {"another model of the same shapes",
       text,
       resume(from, {"--heads", "4"}),
       {another + "--heads was 2, but is 4 here" + fresh}},
      {"another model of the same shapes: a tied head",
       text,
       resume(from, {"--tie-head"}),
       {another + "--tie-head was not given, but is given here" + fresh}},
      {"another network",
       images,
       resume(checkpoint(folder / "cnn", 14), {"--model", "resnet34"}),
       {"--model was resnet18, but is resnet34 here" + fresh}},
      {"another program",
       digits,
       resume(from),
       {another + "the program was train_gpt, but is train_mlp here" + fresh}},
      {"another optimizer",
       text,
       resume(sgd),
       {"optimizer state does not fit: 'param_groups.0.",
        "load it into an optimizer of the same kind"}},
      {"other data",
       other_text,
       resume(from),
       {another + "the training data was ", " bytes with SHA-256 ", "..., but is 720 bytes with ",
        fresh}},
      {"other data, drawn",
       digits,
       resume(of_mlp, {"--draw", "201"}),
       {"the training data was ", fresh}},
      {"another seed",
       text,
       resume(from, {"--seed", "1"}),
       {another + "--seed was 0, but is 1 here" + fresh}},
      {"fewer steps than were done",
       text,
       resume(from, {"--steps", "13"}),
       {"is from step 14, but the run has only 13: give --steps 14 or more"}},
      {"a file that is cut",
       text,
       resume(cut),
       {"checkpoint '" + cut +
            "' cannot be used: optimizer.safetensors has 4096 bytes, the manifest",
        "; continue with --resume " + checkpoint(folder / "cut", 7)}},
      {"a file with a wrong bit",
       text,
       resume(bent),
       {"cannot be used: model.safetensors does not match its SHA-256 in the manifest", takes}},
      {"writing was cut short",
       text,
       resume(unfinished),
       {"manifest.json is missing: writing it was interrupted", takes}},
      {"a newer format",
       text,
       resume(newer),
       {"manifest.json is not in the format 'ringsmith snapshot 1': read it with the version that "
        "wrote it",
        takes}},
      {"auto, and all are of a newer format",
       text,
       automatic(folder / "newer"),
       {"read it with the version that wrote it",
        "a run from the start would overwrite them: move '" + (folder / "newer/checkpoints") +
            "' away"}},
      {"no such folder",
       text,
       resume(folder / "nowhere"),
       {"nowhere' cannot be used: manifest.json is missing: the folder does not exist", takes}},
      {"a file instead of a folder",
       text,
       resume(folder / "other"),
       {"other' cannot be used: manifest.json", takes}},
      {"the run's folder",
       text,
       resume(folder / "gpt"),
       {"manifest.json is missing: the folder is not a checkpoint; continue with --resume " +
        checkpoint(folder / "gpt", kSteps)}},
      {"the folder of the checkpoints",
       text,
       resume(folder / "gpt/checkpoints/"),
       {"; continue with --resume " + (folder / "gpt/checkpoints/step-000024")}},
      {"a folder that another run has used",
       text,
       {"--run-dir", folder / "gpt", "--resume", from},
       {"'" + (folder / "gpt") + "' is not empty", "or continue its run with --resume auto"}},
      {"auto without a folder", text, {"--resume", "auto"}, {"--resume auto needs --run-dir"}},
      {"auto in a run without checkpoints",
       digits,
       automatic(folder / "plain"),
       {"plain' holds other files, but no checkpoints", "--save-every; choose another --run-dir"}},
      {"auto, and another process is there",
       text,
       automatic(busy),
       {"busy/checkpoints' are in use by another process (pid " + std::to_string(getpid()),
        "wait until it ends, or choose another folder"}},
      {"a folder that may not be written to",
       nobody,
       automatic(closed),
       {"cannot write '" + closed +
        "/checkpoints/lock': Permission denied; choose a writable folder for checkpoints"}},
      {"a run's folder that may not be written to",
       digits,
       {"--run-dir", "/proc/run", "--save-every", "5"},
       {"/proc/run", "choose a writable place with --run-dir"}},
      {"--save-every -1",
       text,
       {"--save-every", "-1"},
       {"--save-every: '-1' is not a whole number from 0"}},
      {"--save-every often", text, {"--save-every", "often"}, {"--save-every: 'often'"}},
      {"--keep 0",
       text,
       {"--save-every", "5", "--keep", "0"},
       {"--keep: '0' is not a whole number from 1"}},
  };
  for (const int world : {1, 2, 3}) check_refused(world, uses);
  // None of these refusals prevents a run with the right options.
  run(1, text, {"--run-dir", new_run + "0", "--resume", from, "--save-every", "7"});
  CHECK(read_text(new_run + "0/model.safetensors") == read_text(folder / "gpt/model.safetensors"));
  CHECK(list_snapshots(folder / "newer/checkpoints").size() == 1);
}

TEST_CASE("a checkpoint that cannot be written stops all ranks, with one line",
          "[programs][resume]") {
  // A step takes 0.1 to 1 ms, so the writer has failed long before the next checkpoint is due.
  constexpr int kOften = 3000;
  const TemporaryFolder folder;
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
    // The error is reported before the next checkpoint is due.
    CHECK(number_after("stopped after step ") < number_after("checkpoints/step-") + kOften);
  };
  for (const int world : {1, 3}) {
    const std::string run = folder / ("gone" + std::to_string(world));
    const std::string saved = run + "/checkpoints";
    const auto r = train(world, run,
                         "(until [ -e '" + checkpoint(run, kOften) +
                             "/manifest.json' ]; do sleep 0.1; done; mv '" + saved + "' '" + run +
                             "/moved') &");
    check_stopped(r, run, "No such file or directory");
  }
  for (const int world : {1, 3}) {
    const std::string run = folder / ("full" + std::to_string(world));
    fs::create_directories(run + "/checkpoints");
    const std::string mount = "mount -t tmpfs -o size=1m none '" + run + "/checkpoints' &&";
    if (run_program({"unshare", "-rm", "sh", "-c", mount + " true"}, 10).exit_code != 0) {
      WARN("NOT RUN: a full disk needs a small file system, which this user may not mount");
      return;
    }
    const auto r = train(world, run, mount, {"unshare", "-rm"});
    check_stopped(r, run, "No space left on device");
  }
}
