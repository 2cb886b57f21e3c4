#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/comm/transport/peers.hpp"
#include "tests/apps/programs.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;
namespace fs = std::filesystem;

namespace {

std::string some_text() {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "ring " + std::to_string(i * i) + " of steps\n";
  return text;
}

std::vector<nlohmann::json> parse_lines(const std::string& text) {
  std::vector<nlohmann::json> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

std::vector<std::string> to_folder(const std::string& folder) { return {"--run-dir", folder}; }

}  // namespace

TEST_CASE("a run leaves valid metrics, a trace of all ranks and a readable model",
          "[programs][quick]") {
  const TemporaryFolder folder;
  const std::string text = write_text(folder / "text", some_text());
  const auto r = run_app(2, "train_gpt", tiny_gpt(text) + to_folder(folder / "run"));
  INFO(r.err << r.out);
  REQUIRE(r.exit_code == 0);
  for (const char* word : {"validation loss", "nats/byte", "a sample", "where the time went",
                           "exposed communication", "peak memory", "tokens/s"})
    CHECK_THAT(r.out, ContainsSubstring(word));

  const auto metrics = parse_lines(read_text(folder / "run/metrics.jsonl"));
  REQUIRE(metrics.size() == 4);
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    const auto& m = metrics[i];
    CHECK(m.at("step") == i + 1);
    CHECK(m.at("loss") > 0.0);
    CHECK(m.at("lr") > 0.0);
    CHECK(m.at("exposed_ms") >= 0.0);
    CHECK(m.at("exposed_ms") <= m.at("comm_ms"));
    CHECK(m.at("forward_ms").get<double>() + m.at("backward_ms").get<double>() <=
          m.at("step_ms").get<double>());
  }

  const auto trace = nlohmann::json::parse(read_text(folder / "run/trace.json"));
  std::set<std::pair<int, std::string>> seen;  // rank, name
  double first = 1e300, last = -1e300;
  for (const auto& e : trace.at("traceEvents")) {
    if (e.at("ph") != "X") continue;
    seen.emplace(e.at("pid").get<int>(), e.at("name").get<std::string>());
    CHECK(e.at("dur") >= 0.0);
    first = std::min(first, e.at("ts").get<double>());
    last = std::max(last, e.at("ts").get<double>());
  }
  for (const int rank : {0, 1})
    for (const char* name : {"step", "batch", "forward", "backward", "all_reduce", "optimizer"})
      CHECK(seen.count({rank, name}) == 1);
  // Without a common clock, one rank's events would be far from the other's.
  CHECK(last - first < 60e6);

  const auto facts = nlohmann::json::parse(read_text(folder / "run/run.json"));
  CHECK(facts.at("program") == "train_gpt");
  CHECK(facts.at("world") == 2);
  CHECK_THAT(facts.at("command").get<std::string>(), ContainsSubstring("--data " + text));

  const Checkpoint model = load_safetensors(folder / "run/model.safetensors");
  REQUIRE(model.tensors.count("head.weight") == 1);
  REQUIRE(model.tensors.at("head.weight").sizes() == Shape{256, 16});
  REQUIRE(std::distance(fs::directory_iterator(folder / "run"), fs::directory_iterator()) == 4);
}

TEST_CASE("the trace tells waits for ranks of other nodes from those within the node",
          "[programs]") {
  const TemporaryFolder folder;
  for (const int per_node : {0, 2}) {
    const std::string run = folder / std::to_string(per_node);
    const auto r =
        run_app(4, "train_mlp",
                tiny_mlp() + to_folder(run) +
                    std::vector<std::string>{"--ranks-per-node", std::to_string(per_node)});
    INFO(r.err << r.out);
    REQUIRE(r.exit_code == 0);
    std::set<std::pair<int, int>> within, between;  // waiting rank, awaited rank
    const auto trace = nlohmann::json::parse(read_text(run + "/trace.json"));
    for (const auto& e : trace.at("traceEvents")) {
      const bool here = e.at("name") == comm::kWaitWithinNode;
      if (!here && e.at("name") != comm::kWaitBetweenNodes) continue;
      (here ? within : between).emplace(e.at("pid"), e.at("args").at("rank"));
    }
    // Waits must occur: a message to another node takes at least 20 us, and four busy ranks within
    // a node cannot always find the others ready.
    CHECK(between.empty() == (per_node == 0));
    CHECK((within.size() + between.size()) > 0);
    for (const auto& [rank, other] : within) CHECK((per_node == 0 || rank / 2 == other / 2));
    for (const auto& [rank, other] : between) CHECK((per_node == 2 && rank / 2 != other / 2));
    const auto facts = nlohmann::json::parse(read_text(run + "/run.json"));
    CHECK((facts.at("wait_between_ms") > 0.0) == (per_node == 2));
    CHECK((r.out.find("for ranks of other nodes") != std::string::npos) == (per_node == 2));
  }
}

TEST_CASE("two runs with one seed give the same model bit for bit, another seed another",
          "[programs][quick]") {
  const TemporaryFolder folder;
  const std::string text = write_text(folder / "text", some_text());
  for (const char* program : {"train_gpt", "train_mlp", "train_images"})
    for (const int world : {1, 2, 3}) {
      const auto model = [&](const std::string& seed, const std::string& name) {
        const std::string run = folder / (program + std::to_string(world) + name);
        const auto options = program == std::string("train_gpt")   ? tiny_gpt(text)
                             : program == std::string("train_mlp") ? tiny_mlp()
                                                                   : tiny_images();
        const auto r = run_app(world, program,
                               options + to_folder(run) + std::vector<std::string>{"--seed", seed});
        INFO(r.err);
        REQUIRE(r.exit_code == 0);
        return read_text(run + "/model.safetensors");
      };
      const std::string once = model("5", "a"), again = model("5", "b"), other = model("6", "c");
      REQUIRE(once.size() > 1000);
      CHECK(once == again);
      CHECK(once != other);
    }
}

TEST_CASE("the same global batch trains the same on 1, 2 and 3 ranks", "[programs][quick]") {
  const TemporaryFolder folder;
  const std::string text = write_text(folder / "text", some_text());
  std::vector<double> alone;
  for (const int world : {1, 2, 3}) {
    const std::string run = folder / ("run" + std::to_string(world));
    const auto r = run_app(world, "train_gpt",
                           tiny_gpt(text) + to_folder(run) +
                               std::vector<std::string>{"--global-batch", "12", "--steps", "8"});
    INFO(r.err);
    REQUIRE(r.exit_code == 0);
    const auto metrics = parse_lines(read_text(run + "/metrics.jsonl"));
    REQUIRE(metrics.size() == 8);
    for (std::size_t i = 0; i < metrics.size(); ++i) {
      const double loss = metrics[i].at("loss");
      if (world == 1)
        alone.push_back(loss);
      else
        CHECK(std::abs(loss - alone[i]) <= 1e-5 * alone[i]);
    }
  }
}

TEST_CASE("the same global batch of cropped images trains a CNN the same on 1, 2 and 3 ranks",
          "[programs]") {
  const TemporaryFolder folder;
  const auto losses = [&](int world, const std::string& augment) {
    const std::string run = folder / (augment + std::to_string(world));
    const auto r = run_app(
        world, "train_images",
        to_folder(run) + std::vector<std::string>{"--draw", "50", "--global-batch", "12", "--steps",
                                                  "9", "--augment", augment, "--progress", "off"});
    INFO(r.err);
    REQUIRE(r.exit_code == 0);
    CHECK_THAT(r.out, ContainsSubstring("of 6 images"));  // with 3 ranks: 2 each
    std::vector<double> out;
    for (const auto& line : parse_lines(read_text(run + "/metrics.jsonl")))
      out.push_back(line.at("loss"));
    return out;
  };
  const auto alone = losses(1, "crop-flip");
  REQUIRE(alone.size() == 9);  // in three epochs
  for (const int world : {2, 3}) {
    const auto shared = losses(world, "crop-flip");
    REQUIRE(shared.size() == 9);
    for (std::size_t i = 0; i < 9; ++i) CHECK(std::abs(shared[i] - alone[i]) <= 1e-4 * alone[i]);
  }
  CHECK(std::abs(losses(1, "none")[0] - alone[0]) > 1e-4);
}

TEST_CASE("a small CNN learns from CIFAR-10's files, and a ResNet-18 from MNIST's", "[programs]") {
  const TemporaryFolder folder;
  write_cifar10(folder / "cifar", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});  // one pattern per label
  fs::create_directories(folder / "mnist");
  for (const std::string set : {"train", "t10k"}) {
    write_idx(folder / ("mnist/" + set + "-images-idx3-ubyte"), {20, 28, 28});
    write_idx(folder / ("mnist/" + set + "-labels-idx1-ubyte"), {20});
  }
  const auto train = [&](const std::string& data, const std::vector<std::string>& more) {
    const auto r = run_app(
        2, "train_images",
        std::vector<std::string>{"--data", folder / data, "--run-dir", folder / (data + "-run"),
                                 "--progress", "off", "--augment", "none", "--json"} +
            more);
    INFO(r.err);
    REQUIRE(r.exit_code == 0);
    return nlohmann::json::parse(r.out);
  };
  const auto cnn = train("cifar", {"--batch", "5", "--steps", "60", "--lr", "0.01"});
  CHECK(cnn.at("first_loss") > 2.0);
  CHECK(cnn.at("last_loss") < 0.1);
  CHECK(cnn.at("test_accuracy") == 1.0);
  const auto resnet =
      train("mnist", {"--model", "resnet18", "--width", "8", "--batch", "5", "--steps", "12"});
  CHECK(resnet.at("last_loss") < resnet.at("first_loss"));
}

TEST_CASE("the trace of a ResNet-50 on CIFAR-10 shows the parts of each step", "[programs]") {
  const TemporaryFolder folder;
  write_cifar10(folder / "cifar", {0, 1});
  const auto r = run_app(
      2, "train_images",
      to_folder(folder / "run") +
          std::vector<std::string>{"--data", folder / "cifar", "--model", "resnet50", "--width",
                                   "4", "--batch", "2", "--steps", "2", "--progress", "off"});
  INFO(r.err);
  REQUIRE(r.exit_code == 0);
  const auto trace = nlohmann::json::parse(read_text(folder / "run/trace.json"));
  std::map<std::string, int> seen;
  for (const auto& e : trace.at("traceEvents"))
    if (e.at("ph") == "X" && e.at("pid") == 1) ++seen[e.at("name")];
  for (const char* part : {"step", "batch", "forward", "backward", "optimizer"})
    CHECK(seen[part] == 2);
  CHECK(seen["all_reduce"] > 0);
}

TEST_CASE("train_gpt reads text in a vocabulary's tokens, and ties its head", "[programs]") {
  const TemporaryFolder folder;
  const std::string text = write_text(folder / "text", some_text());
  const std::string vocabulary = write_vocabulary(folder / "vocabulary");
  const auto train = [&](const std::string& run, const std::vector<std::string>& more) {
    const auto r = run_app(2, "train_gpt",
                           tiny_gpt(text) + to_folder(folder / run) + more +
                               std::vector<std::string>{"--steps", "12", "--json"});
    INFO(r.err);
    REQUIRE(r.exit_code == 0);
    return nlohmann::json::parse(r.out);
  };
  const auto tokens = train("tokens", {"--vocab", vocabulary});
  CHECK(tokens.at("last_loss") < tokens.at("first_loss"));
  CHECK(tokens.contains("validation_nats_per_token"));
  const auto tied = train("tied", {"--vocab", vocabulary, "--tie-head"});
  CHECK(tied.at("last_loss") < tied.at("first_loss"));
  const auto weight = [&](const char* run, const char* name) {
    return load_safetensors(folder / (std::string(run) + "/model.safetensors")).tensors.at(name);
  };
  CHECK(weight("tied", "head.weight").sizes() == Shape{259, 16});
  CHECK(weight("tied", "head.weight").to_vector<float>() ==
        weight("tied", "tok.weight").to_vector<float>());
  CHECK(weight("tokens", "head.weight").to_vector<float>() !=
        weight("tokens", "tok.weight").to_vector<float>());
}

TEST_CASE("any number of ranks counts each test image once", "[programs]") {
  const TemporaryFolder folder;
  const auto accuracy = [&](int world, const std::string& run, const std::string& lr) {
    const auto r =
        run_app(world, "train_images",
                to_folder(folder / run) + std::vector<std::string>{"--draw", "300", "--batch", "8",
                                                                   "--steps", "2", "--lr", lr,
                                                                   "--progress", "off", "--json"});
    INFO(r.err);
    REQUIRE(r.exit_code == 0);
    return nlohmann::json::parse(r.out).at("test_accuracy").get<double>();
  };
  // The rate is too small to change any parameter, so all runs evaluate the same model.
  const double alone = accuracy(1, "1", "1e-30");
  const double right = alone * 31;  // images; 2, 3, 4 and 5 ranks do not divide them evenly
  CHECK(std::abs(right - std::round(right)) < 1e-9);
  for (const int world : {2, 3, 4, 5})
    CHECK(accuracy(world, std::to_string(world), "1e-30") == alone);
}

TEST_CASE("NaN in the loss: one line with step and rank, every rank ends, no model", "[programs]") {
  const TemporaryFolder folder;
  const std::string text = write_text(folder / "text", some_text());
  for (const int world : {1, 3}) {
    const std::string run = folder / ("run" + std::to_string(world));
    const auto r = run_app(
        world, "train_gpt",
        tiny_gpt(text) + to_folder(run) + std::vector<std::string>{"--lr", "1e9", "--steps", "50"});
    INFO(r.err);
    REQUIRE_FALSE(r.timed_out);
    CHECK(r.exit_code == 1);
    const auto lines = error_lines("train_gpt", r.err);
    REQUIRE(lines.size() == 1);
    CHECK_THAT(lines[0], ContainsSubstring("the loss is NaN at") && ContainsSubstring("step") &&
                             ContainsSubstring("rank") && ContainsSubstring("--lr"));
    CHECK_FALSE(fs::exists(run + "/model.safetensors"));
    CHECK_FALSE(read_text(run + "/metrics.jsonl").empty());
  }
}

TEST_CASE("--json prints one object and nothing else on standard output", "[programs]") {
  const TemporaryFolder folder;
  const auto r = run_app(
      2, "train_mlp", tiny_mlp() + to_folder(folder / "run") + std::vector<std::string>{"--json"});
  INFO(r.err);
  REQUIRE(r.exit_code == 0);
  const auto report = nlohmann::json::parse(r.out);
  CHECK(report.at("ranks") == 2);
  CHECK(report.at("steps") == 4);
  CHECK(report.at("test_accuracy") >= 0.0);
  CHECK(report.at("peak_resident_bytes").size() == 2);
}

TEST_CASE("--no-trace leaves no trace, and the same model as with it", "[programs]") {
  const TemporaryFolder folder;
  for (const char* name : {"with", "without"}) {
    auto options = tiny_mlp() + to_folder(folder / name);
    if (name == std::string("without")) options.emplace_back("--no-trace");
    REQUIRE(run_app(0, "train_mlp", options).exit_code == 0);
  }
  CHECK(fs::exists(folder / "with/trace.json"));
  CHECK_FALSE(fs::exists(folder / "without/trace.json"));
  CHECK(read_text(folder / "with/model.safetensors") ==
        read_text(folder / "without/model.safetensors"));
}

TEST_CASE("train_bench trains what the PyTorch peer trains, and prints its line", "[programs]") {
  // Expects the first losses of tests/bench/peers/torch_ddp_*.py: same initial values, same data.
  const auto bench = [](int world, const char* model) {
    const auto r = run_app(world, "train_bench", {model, "--steps", "2", "--warmup", "1"});
    INFO(r.err << r.out);
    REQUIRE(r.exit_code == 0);
    return r.out;
  };
  for (const int world : {1, 2}) {
    const std::string out = bench(world, "mlp");
    CHECK_THAT(out, ContainsSubstring("mlp: procs " + std::to_string(world)) &&
                        ContainsSubstring("params 1863690 (7.11 MiB)") &&
                        ContainsSubstring(" samples/s | ms/step ") &&
                        ContainsSubstring("| loss 2.3029 ->"));
    CHECK((out.find("bwd without comm") != std::string::npos) == (world > 1));
  }
  CHECK_THAT(bench(1, "gpt"), ContainsSubstring("params 826368 (3.15 MiB)") &&
                                  ContainsSubstring("| loss 4.3137 ->"));
}

namespace {

std::vector<double> losses(const std::string& folder) {
  std::vector<double> out;
  for (const auto& m : parse_lines(read_text(folder + "/metrics.jsonl")))
    out.push_back(m.at("loss"));
  return out;
}

}  // namespace

TEST_CASE("accumulated batches train as one batch of their size, with one reduction a step",
          "[programs]") {
  const TemporaryFolder folder;
  const std::string text = write_text(folder / "text", some_text());
  const auto run = [&](const std::string& name, const std::vector<std::string>& options) {
    const auto r = run_app(2, "train_gpt", tiny_gpt(text) + to_folder(folder / name) + options);
    INFO(r.err);
    REQUIRE(r.exit_code == 0);
    return losses(folder / name);
  };
  const auto images = [&](const std::string& name, const std::vector<std::string>& options) {
    const auto r =
        run_app(2, "train_images",
                to_folder(folder / name) +
                    std::vector<std::string>{"--draw", "60", "--steps", "4", "--progress", "off"} +
                    options);
    INFO(r.err);
    REQUIRE(r.exit_code == 0);
    return losses(folder / name);
  };
  const auto crops = images("crops", {"--batch", "6"}),
             parts = images("parts", {"--batch", "2", "--accumulate", "3"});
  REQUIRE(parts.size() == 4);
  for (std::size_t i = 0; i < parts.size(); ++i)
    CHECK(std::abs(parts[i] - crops[i]) <= 1e-4 * crops[i]);
  const auto one = run("one", {"--batch", "6"}), three = run("three", {"--accumulate", "3"});
  REQUIRE(three.size() == 4);
  for (std::size_t i = 0; i < three.size(); ++i)
    CHECK(std::abs(three[i] - one[i]) <= 1e-4 * one[i]);
  // The same split, requested by --global-batch.
  CHECK(run("global", {"--accumulate", "3", "--global-batch", "12"}) == three);
  const auto trace = nlohmann::json::parse(read_text(folder / "three/trace.json"));
  int reductions = 0, forwards = 0;
  for (const auto& e : trace.at("traceEvents"))
    if (e.at("ph") == "X" && e.at("pid") == 1) {
      reductions += e.at("name") == "all_reduce" ? 1 : 0;
      forwards += e.at("name") == "forward" ? 1 : 0;
    }
  CHECK(forwards == 12);
  CHECK(reductions == 4);
}

TEST_CASE("the last step of an epoch accumulates what is left, and divides by that", "[programs]") {
  const TemporaryFolder folder;
  const auto run = [&](const std::string& accumulate, const std::string& epochs) {
    const std::string name = folder / (accumulate + "x" + epochs);
    const auto r = run_app(2, "train_mlp",
                           {"--draw", "200", "--hidden", "8", "--batch", "6", "--progress", "off",
                            "--accumulate", accumulate, "--epochs", epochs, "--run-dir", name});
    INFO(r.err);
    REQUIRE(r.exit_code == 0);
    return name;
  };
  // 100 digits per rank are 16 full batches: 5 + 5 + 5 + 1 in each of two epochs.
  CHECK(losses(run("5", "2")).size() == 8);
  // 16 batches per step, whether 16 or 20 are requested.
  const std::string all = read_text(run("16", "1") + "/model.safetensors");
  CHECK(all.size() > 1000);
  CHECK(read_text(run("20", "1") + "/model.safetensors") == all);
}

TEST_CASE("activation checkpointing changes no bit of a training with dropout", "[programs]") {
  const TemporaryFolder folder;
  const std::string text = write_text(folder / "text", some_text());
  const auto run = [&](const std::string& name, const std::vector<std::string>& options) {
    const auto r = run_app(
        2, "train_gpt",
        tiny_gpt(text) + to_folder(folder / name) +
            std::vector<std::string>{"--dropout", "0.2", "--layers", "3", "--accumulate", "2"} +
            options);
    INFO(r.err);
    REQUIRE(r.exit_code == 0);
    return read_text(folder / (name + "/model.safetensors"));
  };
  const std::string plain = run("plain", {});
  CHECK(plain.size() > 1000);
  CHECK(run("checkpointed", {"--activation-checkpointing"}) == plain);
}

TEST_CASE("communication hooks train as without one, and the run tells of them", "[programs]") {
  const TemporaryFolder folder;
  const std::string text = write_text(folder / "text", some_text());
  const auto run = [&](const std::string& hook) {
    const auto r =
        run_app(2, "train_gpt",
                tiny_gpt(text) + to_folder(folder / hook) +
                    std::vector<std::string>{"--comm-hook", hook, "--powersgd-start", "2",
                                             "--check-drift", "1", "--ddp-logging"});
    INFO(r.err);
    REQUIRE(r.exit_code == 0);
    const std::string name = hook == "none"                     ? ""
                             : hook == "powersgd"               ? "power_sgd"
                             : hook == "fp16" || hook == "bf16" ? hook + "_compress"
                                                                : hook;
    CHECK_THAT(r.out, ContainsSubstring("comm_hook: " + name + "\n") &&
                          ContainsSubstring("has_rebuilt_buckets: 1\n") &&
                          ContainsSubstring("iteration: 4\n"));
    return losses(folder / hook);
  };
  const auto none = run("none");
  CHECK(run("allreduce") == none);  // a division by 2 is exact
  for (const char* hook : {"fp16", "bf16", "powersgd"}) {
    const auto got = run(hook);
    REQUIRE(got.size() == none.size());
    CHECK(got != none);
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(std::abs(got[i] - none[i]) < 0.05 * none[i]);
  }
}

TEST_CASE("--ddp plain trains the same model as buckets, bit for bit", "[programs]") {
  const TemporaryFolder folder;
  const std::string text = write_text(folder / "text", some_text());
  using Words = std::vector<std::string>;
  struct Case {
    std::string program;
    Words options;
  };
  int number = 0;
  for (const int world : {1, 2, 3}) {
    // With two ranks, a sum has only one order. With three, the tree algorithm uses one order for
    // all elements of a message.
    const Words order = world == 3 ? Words{"--algorithm", "tree"} : Words{};
    for (const Case& c : {Case{"train_gpt", tiny_gpt(text) + Words{"--accumulate", "2"}},
                          Case{"train_gpt", tiny_gpt(text) + Words{"--tie-head"}},
                          Case{"train_mlp", tiny_mlp() + Words{"--amp", "f16"}},
                          Case{"train_images", tiny_images()}}) {
      const auto model = [&](const std::string& how) {
        const std::string run = folder / (how + std::to_string(number));
        const auto r =
            run_app(world, c.program, c.options + order + to_folder(run) + Words{"--ddp", how});
        INFO(c.program << " on " << world << " ranks, " << how << "\n" << r.out << r.err);
        REQUIRE(r.exit_code == 0);
        const auto trace = nlohmann::json::parse(read_text(run + "/trace.json"));
        int all_reduces = 0;
        for (const auto& e : trace.at("traceEvents")) all_reduces += e.at("name") == "all_reduce";
        return std::pair(read_text(run + "/model.safetensors"), all_reduces);
      };
      const auto [plain, many] = model("plain");
      const auto [buckets, few] = model("buckets");
      INFO(c.program << " on " << world << " ranks");
      CHECK(plain.size() > 1000);
      CHECK(plain == buckets);
      CHECK(many > few);  // one for each gradient
      ++number;
    }
  }
}

TEST_CASE("a run folder that is removed in the middle costs neither the training nor the model",
          "[programs]") {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  std::string command = "cd '" + folder.path.string() +
                        "' && (until [ -s run/metrics.jsonl ]; do sleep 0.02; "
                        "done; rm -r run) & cd '" +
                        folder.path.string() +
                        "' && exec " RINGSMITH_BINARY_DIR "/bin/train_mlp --run-dir run --no-trace";
  for (const std::string& option : tiny_mlp()) command += " '" + option + "'";
  const auto r = run_program({"sh", "-c", command + " --steps 20000"}, 60);
  INFO(r.out << r.err);
  CHECK(r.exit_code == 1);
  CHECK_THAT(r.err, ContainsSubstring("train_mlp: error: cannot write 'run/model.safetensors': No "
                                      "such file or directory; the trained model is in '" +
                                      (folder / "model-")));
  int models = 0;
  for (const auto& entry : fs::directory_iterator(folder.path)) {
    ++models;
    CHECK(load_safetensors(entry.path()).tensors.size() > 1);
  }
  CHECK(models == 1);
}
