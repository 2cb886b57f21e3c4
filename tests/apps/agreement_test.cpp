// For each option of a training program that must be the same on all ranks, one rank gets a
// different value, and all ranks must report the difference. Also tests differences without an
// option: files with the same name but different contents, and replicas that have drifted apart.
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <regex>
#include <set>
#include <tuple>

#include "labs/apps/train/run.hpp"
#include "runtime/data/images.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/parallel/drift.hpp"
#include "tests/apps/resume_runs.hpp"
#include "tests/comm/thread_ranks.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
namespace fs = std::filesystem;

namespace {

constexpr const char* kRemedy = ": use the same value on all ranks";

struct HelpLine {
  std::string name, type, text;
  [[nodiscard]] bool may_differ() const { return text.find("; ranks may differ") != text.npos; }
};

std::vector<HelpLine> options_of(const std::string& program) {
  const auto help = run_app(0, program, {"--help"});
  REQUIRE(help.exit_code == 0);
  const std::regex begin(R"(^  (?:-[A-Za-z],)?(--[a-z0-9-]+)(?: (INT|UINT|FLOAT|TEXT))?(?: .*)?$)");
  std::vector<HelpLine> out;
  std::istringstream in(help.out);
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    std::smatch found;
    if (std::regex_match(line, found, begin)) {
      out.push_back({found[1], found[2], line});
      inside = true;
    } else if (inside && line.rfind("     ", 0) == 0) {
      out.back().text += " " + line.substr(line.find_first_not_of(' '));
    } else {
      inside = false;
    }
  }
  std::erase_if(out, [](const HelpLine& o) { return o.name == "--help" || o.name == "--version"; });
  return out;
}

// Returns the option with an accepted value that differs from the current one. Finds the value by
// trial: after the check of its options, the program stops because RANK is the only launcher
// variable that is set.
std::optional<Options> another(const Program& program, const HelpLine& option) {
  if (option.type.empty()) return Options{option.name};
  const auto try_it = [&](const std::string& value) {
    return run_program(
        Options{"/usr/bin/env", "RANK=0", RINGSMITH_BINARY_DIR "/bin/" + program.name} +
            program.options + Options{option.name, value},
        20);
  };
  Options values{"3", "0.25", "1", "2"};
  if (option.type == "TEXT") {
    const std::string err = try_it("another").err;
    values = {"another", "/"};  // a path that exists
    const std::regex choices(R"( is not one of ([^;]+);)");
    if (std::smatch found; std::regex_search(err, found, choices)) {
      std::string list = found[1];
      for (std::size_t end = 0; (end = list.find(", ")) != list.npos; list.erase(0, end + 2))
        values.push_back(list.substr(0, end));
      values.push_back(list);
    }
  }
  const auto given = std::ranges::find(program.options, option.name);
  for (const std::string& value : values) {
    const bool same = given == program.options.end()
                          ? option.text.find("[" + value + "]") != option.text.npos
                          : *std::next(given) == value;
    if (same) continue;
    const std::string err = try_it(value).err;
    if (err.find(": RANK is set in the environment, but not") != err.npos)
      return Options{option.name, value};
  }
  return {};
}

struct Disagreement {
  std::string what;
  std::unique_ptr<Ranks> ranks;
  std::string log;
};

void check_refused(const Program& program, Disagreement& d) {
  const ProgramResult r = result_of(*d.ranks, d.log);
  INFO(program.name << ": " << d.what << "\n" << r.out << r.err);
  CHECK_FALSE(r.timed_out);
  CHECK(r.exit_code == 6);
  const std::string line = r.err.substr(0, r.err.find('\n') + 1);
  CHECK(r.err == line + line);
  CHECK(line.rfind(program.name + ": error: " + d.what, 0) == 0);
  CHECK_THAT(line, ContainsSubstring(" on rank 0 and ") &&
                       ContainsSubstring(std::string(" on rank 1") + kRemedy + "\n"));
  CHECK(r.out.find("step") == r.out.npos);
}

Program without_length(const Program& program) {
  Program out{program.name, {}};
  for (std::size_t i = 0; i < program.options.size(); ++i)
    if (program.options[i] == "--steps" || program.options[i] == "--batch")
      ++i;
    else
      out.options.push_back(program.options[i]);
  return out;
}

}  // namespace

TEST_CASE("every option that is another one on one rank is named before the first step",
          "[programs][agreement]") {
  const TemporaryFolder folder;
  constexpr std::size_t kAtOnce = 16;
  for (const Program& whole : {gpt(folder), mlp(), cnn(), Program{"train_bench", {"gpt"}}}) {
    const Program program = without_length(whole);
    const std::string run = folder / program.name;
    const Options all = program.name == "train_bench" ? Options{} : Options{"--run-dir", run};
    std::vector<Disagreement> started;
    int tried = 0;
    const auto settle = [&] {
      for (Disagreement& d : started) check_refused(program, d);
      started.clear();
    };
    for (const HelpLine& option : options_of(program.name)) {
      // tests/launch/per_step_test.cpp tests --per-step, which must also match the launcher's
      // setting.
      if (option.may_differ() || option.name == "--per-step") continue;
      INFO(program.name << " " << option.name << ": another() knows no value that it takes");
      const auto other = another(program, option);
      REQUIRE(other.has_value());
      const std::string log = folder / (program.name + option.name);
      started.push_back(
          {option.name + " is ", std::make_unique<Ranks>(2, program, all, log, *other), log});
      ++tried;
      if (started.size() == kAtOnce) settle();
    }
    settle();
    CHECK(tried >= 25);
    CHECK_FALSE(fs::exists(run));
  }
}

TEST_CASE("options that may differ: the list is short, and the ranks train the same",
          "[programs][agreement]") {
  const TemporaryFolder folder;
  const Program text = gpt(folder);
  const std::string copy = write_text(folder / "copy", read_text(folder / "text"));
  // The values that only the last rank passes. {}: none, because the option names data, which the
  // next case compares.
  const std::map<std::string, std::optional<Options>> known{
      {"--bootstrap", Options{"env"}},
      {"--data", Options{copy}},
      {"--device", Options{"cpu"}},
      {"--flight-dir", Options{folder / "."}},
      {"--images", {}},
      {"--interface", Options{"lo"}},
      {"--json", Options{}},
      {"--labels", {}},
      {"--progress", Options{"lines"}},
      {"--run-dir", Options{folder / "of-the-last"}},
      {"--test-images", {}},
      {"--test-labels", {}},
      {"--tokens", {}},
      {"--vocab", {}},
      {"--weights", {}},
      {"--workers", Options{"2"}}};
  std::set<std::string> listed;
  for (const char* program : {"train_gpt", "train_mlp", "train_images", "train_bench"})
    for (const HelpLine& option : options_of(program))
      if (option.may_differ()) listed.insert(option.name);
  std::set<std::string> names;
  Options all;
  for (const auto& [name, values] : known) {
    names.insert(name);
    if (values) all = all + Options{name} + *values;
  }
  CHECK(listed == names);
  // These environment variables decide how ranks meet, where they write files and how device memory
  // is cached. A variable that affects training must belong to an option (Option::environment()).
  std::set<std::string> variables;
  const std::string help = run_app(0, "train_gpt", {"--help"}).out;
  const std::regex variable_name("RINGSMITH_[A-Z_]+");
  for (std::sregex_iterator at(help.begin(), help.end(), variable_name), end; at != end; ++at)
    variables.insert(at->str());
  CHECK(variables ==
        std::set<std::string>{"RINGSMITH_BIND", "RINGSMITH_CUDA_CACHE", "RINGSMITH_FLIGHT_DIR",
                              "RINGSMITH_MEETING_DIR", "RINGSMITH_PER_STEP", "RINGSMITH_SECRET",
                              "RINGSMITH_SECRET_FILE", "RINGSMITH_STORE", "RINGSMITH_STORE_FD"});
  const std::string run = folder / "run";
  const std::string same = folder / "same";
  for (const auto& [where, of_last] : {std::pair(same, Options{}), std::pair(run, all)}) {
    Ranks ranks(2, text, {"--run-dir", where}, where + ".log", of_last);
    const ProgramResult r = result_of(ranks, where + ".log");
    INFO(r.out << r.err);
    REQUIRE(r.exit_code == 0);
  }
  CHECK_FALSE(fs::exists(folder / "of-the-last"));
  CHECK(read_text(run + "/model.safetensors") == read_text(same + "/model.safetensors"));
}

TEST_CASE("ranks that read other data are named, whatever the paths say", "[programs][agreement]") {
  const TemporaryFolder folder;
  const Program text = gpt(folder);
  std::string words = read_text(folder / "text");
  const auto write = [&](const std::string& name, const std::string& bytes) {
    return write_text(folder / name, bytes);
  };
  const auto changed = [&](std::size_t at) {
    std::string other = words;
    other[at] = '!';
    return other;
  };
  const std::string vocabulary = write_vocabulary(folder / "vocabulary");
  const std::string tokens = write_shard(folder / "tokens.bin", std::vector<int>(2000, 5));
  const auto idx = [&](const std::string& name, int classes) {
    const std::string images = write_idx(folder / (name + "-images"), {200, 8, 8});
    std::string labels = read_text(write_idx(folder / (name + "-labels"), {200}));
    for (std::size_t i = 8; i < labels.size(); ++i) labels[i] = static_cast<char>(i % classes);
    return Options{"--images", images, "--labels", write(name + "-labels", labels)};
  };
  const Options here = idx("here", 10);
  const auto of_size = [&](const std::string& name, int height, int width) {
    return Options{"--images", write_idx(folder / (name + "-images"), {200, height, width}),
                   "--labels", write_idx(folder / (name + "-labels"), {200})};
  };
  struct Row {
    Program program;
    Options of_all, of_last;
    std::string what;  // "": no difference
  };
  const std::string train = "the training data is ", held_out = "the held-out data is ";
  const std::vector<Row> rows{
      {text, {}, {"--data", write("longer", words + "more\n")}, train},
      {text, {}, {"--data", write("bit", changed(10))}, train},
      {text, {}, {"--data", write("end", changed(words.size() - 1))}, held_out},
      {text, {}, {"--vocab", vocabulary}, train},
      {{"train_gpt", tiny_gpt_without_text()},
       {"--tokens", tokens},
       {"--tokens", write_shard(folder / "other.bin", std::vector<int>(2000, 6))},
       train},
      {mlp(), here, idx("there", 10), ""},
      {mlp(), here, idx("there-too", 9), train},
      {mlp(), of_size("flat", 6, 8), of_size("tall", 8, 6), train},
      {cnn(),
       {},
       {"--data", (write_cifar10(folder / "cifar", {1, 2, 3, 4}), folder / "cifar")},
       train}};
  for (const Row& row : rows) {
    const std::string run = folder / "run";
    const std::string log = folder / "log";
    Disagreement d{row.what,
                   std::make_unique<Ranks>(2, row.program, row.of_all + Options{"--run-dir", run},
                                           log, row.of_last),
                   log};
    INFO(row.of_last.back());
    if (row.what.empty()) {
      const ProgramResult r = result_of(*d.ranks, log);
      INFO(r.out << r.err);
      CHECK(r.exit_code == 0);
    } else {
      check_refused(row.program, d);
      CHECK_FALSE(fs::exists(run));
    }
    fs::remove_all(run);
    fs::remove(log + ".err");
    fs::remove(log);
  }
}

TEST_CASE("weights of another file on one rank are named", "[programs][agreement]") {
  const TemporaryFolder folder;
  const Program program = cnn();
  for (const char* seed : {"1", "2"})
    run(1, program, {"--seed", seed, "--steps", "1", "--run-dir", folder / seed});
  const std::string first = folder / "1/model.safetensors", second = folder / "2/model.safetensors";
  Disagreement d{"the weights is ",
                 std::make_unique<Ranks>(2, program, Options{"--weights", first}, folder / "log",
                                         Options{"--weights", second}),
                 folder / "log"};
  check_refused(program, d);
}

TEST_CASE("other programs, other words, and a wrong option on one rank alone",
          "[programs][agreement]") {
  const auto ranks = [](const std::string& zero, const std::string& one) {
    return run_program({"env", "ASAN_OPTIONS=" + variable("ASAN_OPTIONS") + ":detect_leaks=0",
                        RINGSMITH_SOURCE_DIR "/tests/support/mpirun.sh", "2", "sh", "-c",
                        "cd " RINGSMITH_BINARY_DIR "/bin; [ $OMPI_COMM_WORLD_RANK = 0 ] && exec " +
                            zero + "; exec " + one},
                       60);
  };
  const auto programs =
      ranks("./train_mlp --draw 200 --steps 2", "./train_images --draw 200 --steps 2");
  INFO(programs.err);
  CHECK(programs.exit_code == 6);
  CHECK_THAT(programs.err,
             ContainsSubstring("the program is train_mlp on rank 0 and train_images on "
                               "rank 1: use the same value on all ranks"));
  const auto models = ranks("./train_bench gpt", "./train_bench mlp");
  INFO(models.err);
  CHECK(models.exit_code == 6);
  CHECK_THAT(models.err, ContainsSubstring("model is gpt on rank 0 and mlp on rank 1"));
  const auto wrong = ranks("./train_mlp --draw 200 --steps 2", "./train_mlp --lr -1");
  INFO(wrong.err);
  CHECK(wrong.exit_code == 6);
  CHECK_THAT(wrong.err, ContainsSubstring("train_mlp: error: --lr: '-1' is not a number above 0"));
}

TEST_CASE("without a launcher every rank says what is wrong with its own options",
          "[programs][agreement]") {
  const TemporaryFolder folder;
  const Program perf{"all_reduce_perf", {"-b", "8", "-n", "1", "-w", "0", "--timeout", "5"}};
  for (const auto& [program, wrong, says] : std::vector<std::tuple<Program, Options, std::string>>{
           {mlp(), {"--lr", "-1"}, "train_mlp: error: --lr: '-1' is not a number above 0"},
           {mlp(), {"--no-such", "1"}, "train_mlp: error: --no-such: unknown option"},
           {perf, {"--iters", "0"}, "all_reduce_perf: error: --iters: '0' is not a whole number"},
           {perf, {"--device", "cuda:99"}, "all_reduce_perf: error: "}}) {
    const std::string log = folder / "log";
    Ranks alone(2, program, {"--timeout", "5"}, log, wrong);
    REQUIRE(alone.wait(60));
    INFO(read_text(log) << read_text(log + ".err"));
    CHECK(alone.code(1) == 6);
    CHECK(alone.code(0) != 0);
    CHECK_THAT(read_text(log + ".err"), ContainsSubstring(says));
    std::filesystem::remove(log + ".err");
    Ranks both(2, program, wrong, log);
    CHECK(result_of(both, log).exit_code == 6);
    CHECK(error_lines(program.name, read_text(log + ".err")).size() == 2);
    std::filesystem::remove(log + ".err");
  }
}

TEST_CASE("a schedule whose path is the same and whose steps are not", "[programs][agreement]") {
  const TemporaryFolder folder;
  for (const char* rank : {"0", "1"}) fs::create_directories(folder / rank);
  const std::string begin = "all_reduce world 2 chunks 2\n";
  write_text(folder / "0/steps",
             begin + "0 1 0 1 1 reduce\n1 0 1 0 0 reduce\n0 1 1 1 0 copy\n1 0 0 0 1 copy\n");
  write_text(folder / "1/steps",
             begin + "0 1 1 1 0 reduce\n1 0 0 0 1 reduce\n0 1 0 1 1 copy\n1 0 1 0 0 copy\n");
  const auto train = [&](const std::string& where) {
    return run_program({"env", "ASAN_OPTIONS=" + variable("ASAN_OPTIONS") + ":detect_leaks=0",
                        RINGSMITH_SOURCE_DIR "/tests/support/mpirun.sh", "2", "sh", "-c",
                        "cd " + (folder / where) +
                            "; exec " RINGSMITH_BINARY_DIR
                            "/bin/train_bench mlp --steps 1 --warmup 0 --schedule steps"},
                       60);
  };
  for (const char* same : {"0", "1"}) {
    const auto r = train(same);
    INFO(r.err);
    REQUIRE(r.exit_code == 0);
  }
  const auto r = train("$OMPI_COMM_WORLD_RANK");
  INFO(r.err);
  CHECK(r.exit_code == 6);
  CHECK_THAT(r.err,
             ContainsSubstring("the text of --schedule is all_reduce world 2 chunks 2\\n0 1 0") &&
                 ContainsSubstring(kRemedy));
}

TEST_CASE("ranks on devices of different kinds are refused when they meet",
          "[programs][agreement]") {
  if (!apps::kEmulatedDevices) return;  // this machine may have no device
  const Program program = mlp();
  const TemporaryFolder folder;
  Disagreement d{
      "the kind of --device is cpu on rank 0 and cuda",
      std::make_unique<Ranks>(2, program, Options{}, folder / "log", Options{"--device", "cuda:0"}),
      folder / "log"};
  check_refused(program, d);
}

TEST_CASE("replicas that have drifted apart end the run, and nothing good is replaced",
          "[agreement]") {
  for (const int world : {2, 3}) {
    const TemporaryFolder folder;
    const ImageDataset digits(draw_digits(60, 1));
    const auto said = test::run_threads<std::string>(world, [&](comm::ProcessGroup& group) {
      const std::shared_ptr<comm::ProcessGroup> shared(std::shared_ptr<void>(), &group);
      apps::TrainOptions o;
      o.no_trace = true;
      o.heeds_signals = false;
      o.save_every = 1;
      o.run_dir = folder / "run";
      o.progress = "off";
      o.json = true;  // nothing on standard output
      apps::TrainingRun run(group, o);
      run.open_folder();
      MLP model({28 * 28, 4, 10});
      DistributedDataParallel ddp(model, shared);
      SGD optimizer(model.parameters(), {.lr = 0.1});
      GradScaler scaler({.enabled = false});
      apps::Batches batches(digits, group, 4, 0, 0);
      run.resume({.model = model,
                  .optimizer = optimizer,
                  .scaler = scaler,
                  .states = apps::states_of(batches, ddp),
                  .ranks = group.size(),
                  .batch_size = 4,
                  .steps = 9,
                  .next_loss = [] { return 1.0; },
                  .data = "none",
                  .fixed = {}});
      run.start({.steps = 9, .device = {}});
      const auto step = [&] {
        (void)run.begin_step();
        run.fetched();
        run.forward_done();
        run.backward_done();
        run.losses_done(1.0, apps::LossExchange::Wish::none);
        run.step_done(true, 0.1, 1);
      };
      step();  // no difference, so a checkpoint is saved
      const NoGradGuard no_grad;
      if (group.rank() == world - 1) model.parameters().back().fill_(7);
      std::string words;
      for (const std::function<void()>& save :
           {std::function<void()>(step), std::function<void()>([&] {
              run.finish({.headline = {}, .figures = {}, .model = {}, .metadata = {}});
            })})
        try {
          save();
          words += "nothing was said;";
        } catch (const DriftError& e) {
          words += std::string(e.what()) + ";";
        } catch (const apps::QuietStop&) {
          words += "quiet;";
        }
      return words;
    });
    for (std::size_t r = 1; r < said.size(); ++r) CHECK(said[r] == "quiet;quiet;");
    CHECK_THAT(said[0], ContainsSubstring("drifted apart: ") &&
                            ContainsSubstring("and another on rank " + std::to_string(world - 1)));
    CHECK(said[0].find("nothing was said") == said[0].npos);
    const auto saved = list_snapshots(folder / "run/checkpoints");
    REQUIRE(saved.size() == 1);
    CHECK(saved[0].first == 1);
    CHECK_FALSE(fs::exists(folder / "run/model.safetensors"));
  }
}
