// Wrong input ends with exit code 6 and one line that names the fault and the remedy.
#include <algorithm>
#include <sstream>

#include "runtime/checkpoint/safetensors.hpp"
#include "tests/apps/programs.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::testing;

TEST_CASE("--help lists options with units, the environment and the exit codes", "[programs]") {
  for (const char* program : {"train_gpt", "train_mlp", "train_images"}) {
    const auto r = run_app(0, program, {"--help"});
    REQUIRE(r.exit_code == 0);
    REQUIRE(r.err.empty());
    for (const char* word : {"--data",
                             "--steps",
                             "--epochs",
                             "--batch",
                             "--global-batch",
                             "--lr",
                             "--seed",
                             "--threads",
                             "--kernels",
                             "--bucket-cap-mb",
                             "MiB",
                             "--algorithm",
                             "--timeout",
                             "seconds",
                             "--run-dir",
                             "--no-trace",
                             "--json",
                             "ringrun --standalone",
                             "--accumulate",
                             "--comm-hook",
                             "--powersgd-rank",
                             "--powersgd-start",
                             "--check-drift",
                             "--ddp-logging",
                             "Environment",
                             "Exit codes"})
      CHECK_THAT(r.out, ContainsSubstring(word));
  }
}

TEST_CASE("what a full disk does not take is no success", "[programs]") {
  const auto r = run_program(
      {"sh", "-c", "exec " RINGSMITH_BINARY_DIR "/bin/schedule_player > /dev/full"}, 60);
  CHECK(r.exit_code == 1);
  CHECK(r.err ==
        "schedule_player: error: cannot write to standard output: No space left on device\n");
}

TEST_CASE("limits of this process are named, with the command that raises them", "[programs]") {
  const auto limited = [](const std::string& limit, const std::string& command) {
    return run_program(
        {"bash", "-c", "ulimit -c 0; " + limit + "; exec " RINGSMITH_BINARY_DIR "/bin/" + command},
        60);
  };
  const auto lacks = [](const ProgramResult& r, const std::string& words) {
    INFO(r.out << r.err);
    CHECK(r.exit_code == 7);
    CHECK_THAT(r.err, ContainsSubstring(words));
    CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
  };
  const std::string size =
      "this process is limited to files of 0 bytes; raise the limit, for instance "
      "with 'ulimit -f unlimited'";
  lacks(limited("ulimit -f 0", "train_mlp --draw 60 --steps 2"), size);
  lacks(limited("ulimit -f 0", "all_reduce_perf -b 8 -n 1"), size);
  lacks(limited("ulimit -n 8", "train_gpt --steps 2"),
        "this process is limited to 8; raise the limit");
}

TEST_CASE("help and errors are printed once, not once for each rank", "[programs]") {
  const auto help = run_app(2, "train_mlp", {"--help"});
  REQUIRE(help.exit_code == 0);
  const auto first = help.out.find("--global-batch ");
  REQUIRE(first != std::string::npos);
  REQUIRE(help.out.find("Exit codes", help.out.find("Exit codes") + 1) == std::string::npos);
  require_refusal("train_mlp", run_app(2, "train_mlp", {"--nonsense"}), {"--nonsense", "--help"});
}

TEST_CASE("wrong options are refused by name", "[programs]") {
  require_refusal("train_gpt", run_app(0, "train_gpt", {"--nonsense"}), {"--nonsense"});
  require_refusal("train_gpt", run_app(0, "train_gpt", {"--lr"}), {"--lr needs a value"});
  require_refusal("train_gpt", run_app(0, "train_gpt", {"--lr", "fast"}), {"--lr", "fast"});
  require_refusal("train_gpt", run_app(0, "train_gpt", {"--lr", "-1"}), {"--lr"});
  require_refusal("train_gpt", run_app(0, "train_gpt", {"--batch", "0"}),
                  {"--batch: '0' is not a whole number from 1 to 2147483647;"});
  require_refusal("train_gpt", run_app(0, "train_gpt", {"--timeout", "nan"}),
                  {"--timeout: 'nan' is not a number from 0.001 to 1000000;"});
  require_refusal("train_gpt", run_app(0, "train_gpt", {"--dropout", "nan"}), {"'nan'"});
  require_refusal("train_gpt", run_app(0, "train_gpt", {"--kernels", "turbo"}),
                  {"--kernels", "turbo", "oracle"});
  require_refusal("train_gpt", run_app(0, "train_gpt", {"--algorithm", "star"}),
                  {"--algorithm", "star", "ring"});
  require_refusal("train_gpt", run_app(0, "train_gpt", {"--steps", "3", "--epochs", "1"}),
                  {"--steps", "--epochs"});
  require_refusal("train_gpt", run_app(0, "train_gpt", {"--dim", "30", "--heads", "4"}),
                  {"30", "4"});
  for (const char* program : {"train_gpt", "train_mlp"})
    require_refusal(program, run_app(2, program, {"--bench", "--bench-steps", "2"}),
                    {"--bench", "train_bench", "--help"});
  require_refusal("train_bench", run_app(0, "train_bench", {}), {"model"});
  require_refusal("train_bench", run_app(0, "train_bench", {"resnet"}), {"resnet", "gpt"});
  require_refusal("train_bench", run_app(0, "train_bench", {"mlp", "--layers", "2"}),
                  {"--layers", "train_bench gpt"});
  require_refusal("train_gpt", run_app(0, "train_gpt", {"--graph"}), {"--graph", "--device cpu"});
  require_refusal("train_gpt", run_app(0, "train_gpt", {"--graph", "--shard", "parameters"}),
                  {"--graph", "--shard"});
  require_refusal("train_bench", run_app(0, "train_bench", {"mlp", "--graph"}),
                  {"--graph", "train_bench gpt"});
  require_refusal("train_bench", run_app(0, "train_bench", {"gpt", "--graph"}),
                  {"--graph", "--device cuda"});
  for (const char* program : {"train_gpt", "train_mlp"})
    require_refusal(program, run_app(2, program, {"--eval-every", "-1"}),
                    {"--eval-every: '-1' is not a whole number from 0"});
  require_refusal("train_report", run_app(0, "train_report", {}), {"folder"});
  require_refusal("train_report", run_app(0, "train_report", {"/nonexistent/run"}),
                  {"/nonexistent/run", "no such folder", "give the folder of a run"});
  require_refusal("train_mlp", run_app(0, "train_mlp", {"--labels", "x"}),
                  {"--images", "--labels"});
  require_refusal("train_images", run_app(0, "train_images", {"--model", "vgg"}),
                  {"--model", "vgg", "resnet18"});
  require_refusal("train_images", run_app(2, "train_images", {"--width", "8"}),
                  {"--width", "--model resnet18"});
  require_refusal("train_mlp", run_app(2, "train_mlp", {"--global-batch", "7"}),
                  {"--global-batch 7", "multiple of 2"});
  require_refusal("train_mlp",
                  run_app(2, "train_mlp", {"--global-batch", "8", "--accumulate", "3"}),
                  {"--global-batch 8", "2 ranks with --accumulate 3", "multiple of 6"});
  for (const char* wrong : {"0", "-1", "1.5", "many", "1048577"})
    require_refusal(
        "train_gpt", run_app(0, "train_gpt", {"--accumulate", wrong}),
        {"--accumulate: '" + std::string(wrong) + "' is not a whole number from 1 to "});
  require_refusal("train_gpt", run_app(0, "train_gpt", {"--comm-hook", "fp8"}),
                  {"--comm-hook", "fp8", "fp16", "powersgd"});
  require_refusal("train_gpt", run_app(0, "train_gpt", {"--ddp", "hooks"}),
                  {"--ddp: 'hooks' is not one of buckets, plain"});
  const std::vector<std::vector<std::string>> of_buckets{
      {"--comm-hook", "fp16"}, {"--overlap", "on"}, {"--bucket-cap-mb", "1"}, {"--ddp-logging"}};
  for (const auto& wrong : of_buckets)
    for (const char* program : {"train_gpt", "train_mlp"})
      require_refusal(
          program, run_app(2, program, std::vector<std::string>{"--ddp", "plain"} + wrong),
          {"--ddp plain cannot be combined with " + wrong[0], "leave out one of the two"});
  require_refusal("train_gpt", run_app(0, "train_gpt", {"--powersgd-start", "1"}),
                  {"--powersgd-start: '1' is not a whole number from 2 to "});
  require_refusal("train_gpt", run_app(0, "train_gpt", {"--powersgd-rank", "0"}),
                  {"--powersgd-rank: '0' is not a whole number from 1 to "});
  require_refusal("train_gpt", run_app(0, "train_gpt", {"--check-drift", "-1"}),
                  {"--check-drift: '-1' is not a whole number from 0 to "});
}

TEST_CASE("missing, empty, short and unreadable texts are refused by name", "[programs]") {
  const TemporaryFolder folder;
  const auto refuse = [&](const std::string& path, const std::string& why) {
    require_refusal("train_gpt", run_app(0, "train_gpt", tiny_gpt(path)), {path, why});
  };
  refuse(folder / "missing", "No such file");
  refuse(write_text(folder / "empty", ""), "empty");
  refuse(write_text(folder / "short", "ring"), "short");
  refuse(folder.path, "folder");
  require_refusal("train_gpt", run_app(3, "train_gpt", tiny_gpt(folder / "missing")),
                  {folder / "missing"});
}

TEST_CASE("missing, truncated, mislabelled and foreign IDX files are refused by name",
          "[programs]") {
  const TemporaryFolder folder;
  const std::string labels = write_idx(folder / "labels", {40});
  const std::string images = write_idx(folder / "images", {40, 4, 4});
  const auto refuse = [&](const std::string& i, const std::string& l, const std::string& named) {
    require_refusal("train_mlp",
                    run_app(0, "train_mlp",
                            tiny_mlp() + std::vector<std::string>{"--images", i, "--labels", l}),
                    {named});
  };
  refuse(folder / "missing", labels, folder / "missing");
  refuse(images, folder / "missing", folder / "missing");
  refuse(write_idx(folder / "truncated", {40, 4, 4}, 639), labels, folder / "truncated");
  refuse(write_idx(folder / "surplus", {40, 4, 4}, 641), labels, folder / "surplus");
  refuse(write_text(folder / "empty", ""), labels, folder / "empty");
  refuse(write_text(folder / "foreign", "GIF89a and then some more bytes"), labels,
         folder / "foreign");
  refuse(images, write_idx(folder / "fewer", {39}), "39");
  require_refusal("train_mlp", run_app(0, "train_mlp", {"--data", folder / "nowhere"}),
                  {folder / "nowhere"});
  const auto good =
      run_app(0, "train_mlp",
              tiny_mlp() + std::vector<std::string>{"--images", images, "--labels", labels,
                                                    "--run-dir", folder / "run"});
  INFO(good.err);
  REQUIRE(good.exit_code == 0);
}

TEST_CASE("broken shards and vocabularies are refused by name, on several ranks by one",
          "[programs]") {
  const TemporaryFolder folder;
  const auto refuse = [&](int world, const std::vector<std::string>& options,
                          const std::vector<std::string>& words) {
    require_refusal("train_gpt", run_app(world, "train_gpt", tiny_gpt_without_text() + options),
                    words);
  };
  const std::string shard = folder / "shard.bin";
  std::vector<int> tokens(300);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int>(i * 37 % 258);
  write_shard(shard, tokens);
  const std::string whole = read_text(shard);
  write_text(shard, whole.substr(0, whole.size() - 1));
  refuse(0, {"--tokens", shard}, {shard, "599 bytes of tokens", "promises 600", "again"});
  refuse(3, {"--tokens", shard}, {shard, "599 bytes of tokens"});
  write_text(shard, "text" + whole.substr(4));
  refuse(0, {"--tokens", shard}, {shard, "does not begin with 20240520", "give"});
  write_shard(shard, tokens, 7);
  refuse(0, {"--tokens", shard}, {shard, "version 7"});
  const std::string vocabulary = write_vocabulary(folder / "vocabulary");
  tokens[123] = 259;  // one above the vocabulary's last token, 258, which ends a text
  write_shard(shard, tokens);
  refuse(2, {"--tokens", shard, "--vocab", vocabulary},
         {shard, "token number 123 is 259", "vocabulary has 259", "give the vocabulary"});
  tokens[123] = 258;
  write_shard(shard, {1, 2, 3});
  refuse(0, {"--tokens", shard}, {shard, "too short: 3 tokens", "smaller context"});
  refuse(0, {"--tokens", folder / "none"}, {folder / "none", "No such file"});
  refuse(0, {"--tokens", shard, "--data", shard}, {"--tokens", "--data"});
  write_shard(shard, tokens);
  refuse(0, {"--tokens", shard, "--vocab", write_text(folder / "json", "{\"the\": 1}")},
         {folder / "json", "line 1", "tiktoken"});
  refuse(
      0,
      {"--tokens", shard, "--vocab", write_text(folder / "cut", read_text(vocabulary).substr(7))},
      {folder / "cut", "line 1: expected the number 0"});
  const auto r =
      run_app(2, "train_gpt",
              tiny_gpt_without_text() + std::vector<std::string>{"--tokens", shard, "--vocab",
                                                                 vocabulary, "--run-dir",
                                                                 folder / "run", "--prompt", "in"});
  INFO(r.err);
  REQUIRE(r.exit_code == 0);
  for (const char* word : {"270", "nats/token", "a sample", "x 16 tokens"})
    CHECK_THAT(r.out, ContainsSubstring(word));
}

TEST_CASE("broken CIFAR-10 folders are refused by name, on several ranks by one", "[programs]") {
  const TemporaryFolder folder;
  const std::string cifar = folder / "cifar";
  const auto options = [&] { return tiny_images() + std::vector<std::string>{"--data", cifar}; };
  const auto refuse = [&](int world, const std::vector<std::string>& words) {
    require_refusal("train_images", run_app(world, "train_images", options()), words);
  };
  refuse(0, {cifar, "data_batch_1.bin", "train-images-idx3-ubyte", "give the folder"});
  write_cifar10(cifar, {1, 2, 3});
  const std::string good = read_text(cifar + "/data_batch_4.bin");
  write_text(cifar + "/data_batch_4.bin", good + "x");
  refuse(0, {cifar + "/data_batch_4.bin", "9220 bytes", "record size 3073", "unpack"});
  refuse(3, {cifar + "/data_batch_4.bin", "9220 bytes"});
  write_text(cifar + "/data_batch_4.bin", "\x0b" + good.substr(1));
  refuse(0, {cifar + "/data_batch_4.bin", "label of record 0 is 11"});
  std::filesystem::remove(cifar + "/data_batch_4.bin");
  refuse(0, {cifar + "/data_batch_4.bin", "No such file"});
  write_text(cifar + "/data_batch_4.bin", good);
  refuse(3, {"not one full batch", "15 samples for 3 ranks", "batch size is 6"});
  const auto r =
      run_app(2, "train_images",
              options() + std::vector<std::string>{"--run-dir", folder / "run", "--batch", "3"});
  INFO(r.err);
  REQUIRE(r.exit_code == 0);  // the file is complete again
  CHECK_THAT(r.out, ContainsSubstring("15 to train, 3 to test"));
}

TEST_CASE("weights of another model are refused, those of the same are what training begins with",
          "[programs]") {
  const TemporaryFolder folder;
  const auto run = [&](const std::string& name, const std::vector<std::string>& more) {
    return run_app(0, "train_images",
                   tiny_images() + std::vector<std::string>{"--run-dir", folder / name} + more);
  };
  REQUIRE(run("first", {}).exit_code == 0);
  const std::string weights = folder / "first/model.safetensors";
  require_refusal("train_images", run("other", {"--weights", weights, "--model", "resnet34"}),
                  {weights, "--model resnet34", "'layer1.2.bn1.bias' is missing", "more"});
  require_refusal("train_images", run("wider", {"--weights", weights, "--width", "5"}),
                  {weights, "'bn1.bias' is [4], the model has [5]"});
  require_refusal("train_images", run("none", {"--weights", folder / "none.safetensors"}),
                  {"none.safetensors"});
  write_text(folder / "cut.safetensors", read_text(weights).substr(0, 5000));
  require_refusal("train_images", run("cut", {"--weights", folder / "cut.safetensors"}),
                  {"cut.safetensors"});
  REQUIRE(run("again", {"--weights", weights, "--lr", "1e-30"}).exit_code == 0);
  const auto parameter = [&](const std::string& name) {
    return load_safetensors(folder / (name + "/model.safetensors"))
        .tensors.at("layer4.1.conv2.weight")
        .to_vector<float>();
  };
  CHECK(parameter("again") == parameter("first"));
}

TEST_CASE("a dataset smaller than the world or than one batch is refused", "[programs]") {
  const TemporaryFolder folder;
  const std::vector<std::string> data = {
      "--images",      write_idx(folder / "images", {2, 4, 4}),
      "--labels",      write_idx(folder / "labels", {2}),
      "--test-images", write_idx(folder / "test-images", {10, 4, 4}),
      "--test-labels", write_idx(folder / "test-labels", {10})};
  require_refusal(
      "train_mlp",
      run_app(3, "train_mlp", tiny_mlp() + data + std::vector<std::string>{"--batch", "1"}),
      {"smaller than the world", "2 samples", "3 ranks"});
  require_refusal("train_mlp", run_app(0, "train_mlp", tiny_mlp() + data), {"batch", "2 samples"});
}

TEST_CASE("a run directory that cannot be used is refused before training", "[programs]") {
  const TemporaryFolder folder;
  const std::string file = write_text(folder / "file", "x");
  const auto with = [&](const std::string& dir) {
    return tiny_mlp() + std::vector<std::string>{"--run-dir", dir};
  };
  require_refusal("train_mlp", run_app(0, "train_mlp", with(file + "/run")),
                  {file + "/run", "--run-dir"});
  require_refusal("train_mlp", run_app(0, "train_mlp", with(folder.path)),
                  {"not empty", "--run-dir"});
  require_refusal("train_mlp", run_app(2, "train_mlp", with("/proc/run")),
                  {"/proc/run", "--run-dir"});
}
