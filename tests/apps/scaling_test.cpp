#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

#include "labs/apps/compare/prediction.hpp"
#include "runtime/base/error.hpp"
#include "tests/apps/programs.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;

TEST_CASE("a step ends when the last bucket does, and each waits for itself and its turn",
          "[scaling]") {
  // Backward lasts from 1 to 3; four equal buckets are ready at 1.5, 2, 2.5 and 3.
  const std::vector<double> buckets(4, 100.0);
  const auto step = [&](double seconds) {
    return predict_step(3, buckets, [=](double) { return seconds; });
  };
  CHECK(step(0.25).exposed == Approx(0.25));  // all hidden except the last bucket
  CHECK(step(0.25).reductions == Approx(1.0));
  CHECK(step(0.5).exposed == Approx(0.5));
  CHECK(step(1.0).exposed == Approx(1.5 + 4 - 3));  // the buckets queue behind the first one
  CHECK(step(1.0).total() == Approx(5.5));
  CHECK(step(0).exposed == 0);
}

TEST_CASE("shipped models have the parameters that their names promise, in DDP's buckets",
          "[scaling]") {
  const TrainedModel resnet = load_model("resnet50"), gpt = load_model("gpt2-xl");
  const auto parameters = [](const TrainedModel& model) {
    std::size_t n = 0;
    for (const Elements t : model.tensors) n += t.value;
    return n;
  };
  CHECK(parameters(resnet) == 25'557'032);
  CHECK(resnet.tensors.size() == 161);
  CHECK(parameters(gpt) == 1'557'611'200);
  const auto buckets = buckets_of(resnet, MiB(1), MiB(25));
  double bytes = 0;
  for (const double b : buckets) bytes += b;
  CHECK(bytes == 4.0 * 25'557'032);
  CHECK(buckets.front() == 4.0 * 2'049'000);  // the classifier alone exceeds the first bucket's cap
  CHECK(buckets.size() == 5);
}

TEST_CASE("shipped topologies are what their names promise", "[scaling]") {
  const comm::Topology pod = load_topology("dgx-h100"), ethernet = load_topology("ethernet");
  CHECK(pod.most_ranks() == 16'384);
  CHECK(ethernet.most_ranks() == 16'384);
  CHECK(pod.nics_per_node == 8);
  CHECK(ethernet.nics_per_node == 1);
  CHECK(ethernet.nic.beta > ethernet.gpu.beta);
}

TEST_CASE("files that are wrong are refused by name", "[scaling]") {
  const auto folder = std::filesystem::temp_directory_path();
  const std::string file = (folder / ("ringsmith_scaling_" + std::to_string(getpid()) + ".json"));
  const auto refusal = [&](const std::string& text) {
    std::ofstream(file) << text;
    try {
      (void)load_topology(file);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  CHECK_THAT(refusal("{"), ContainsSubstring(file) && ContainsSubstring("is not JSON"));
  CHECK_THAT(refusal("[]"), ContainsSubstring("expected a JSON object"));
  CHECK_THAT(refusal("{}"), ContainsSubstring("\"name\" is missing"));
  const std::string start = R"({"name": "x", "source": "y", "nodes": )";
  CHECK_THAT(refusal(start + "0}"), ContainsSubstring("\"nodes\""));
  CHECK_THAT(refusal(start + "2.5}"), ContainsSubstring("whole number"));
  CHECK_THAT(refusal(start + R"(2, "gpus_per_node": 1, "nics_per_node": 1, "gpu_link": 3})"),
             ContainsSubstring("latency_us"));
  for (const char* tensors :
       {R"({"repeat": 1, "elements": [-3]})", R"({"repeat": 1, "elements": [1.5]})",
        R"({"repeat": 1, "elements": [0]})", R"({"repeat": -1, "elements": [3]})",
        R"({"repeat": 10000000000, "elements": [3]})"}) {
    std::ofstream(file) << R"({"name": "x", "source": "y", "tensors": [)" << tensors << "]}";
    INFO(tensors);
    CHECK_THROWS_WITH(load_model(file), ContainsSubstring("whole number"));
  }
  CHECK_THROWS_WITH(load_topology(folder / ""), ContainsSubstring("an existing file"));
  CHECK_THROWS_WITH(load_topology("/nowhere/pod.json"), ContainsSubstring("/nowhere/pod.json"));
  CHECK_THROWS_WITH(load_model("resnet51"), ContainsSubstring("gpt2-xl"));
  std::filesystem::remove(file);
  REQUIRE(mkfifo(file.c_str(), 0600) == 0);  // no process writes to it
  CHECK_THROWS_WITH(load_topology(file), ContainsSubstring(file) && ContainsSubstring("is a FIFO"));
  CHECK_THROWS_WITH(load_model(file), ContainsSubstring(file) && ContainsSubstring("is a FIFO"));
  std::filesystem::remove(file);
}

TEST_CASE("scaling prints every world with its algorithms, and draws them", "[scaling]") {
  const testing::TemporaryFolder folder;
  const std::string svg = folder / "scaling.svg";
  const auto r = testing::run_app(
      0, "scaling", {"--topology", "ethernet", "--model", "resnet50", "--to", "64", "--svg", svg});
  REQUIRE(r.exit_code == 0);
  CHECK_THAT(r.out, ContainsSubstring("ResNet-50") && ContainsSubstring("plain Ethernet") &&
                        ContainsSubstring("97.5 MiB of gradients in 5 buckets") &&
                        ContainsSubstring("predicted, not measured"));
  for (const char* row : {"     2  ring ", "    64  ring ", "double_tree", "hierarchical"})
    CHECK_THAT(r.out, ContainsSubstring(row));
  CHECK(r.out.find("   128  ring") == std::string::npos);
  CHECK_THAT(testing::read_text(svg), ContainsSubstring("predicted from the description") &&
                                          ContainsSubstring("hierarchical</text>"));
}

TEST_CASE("scaling refuses what it cannot price, in one line", "[scaling]") {
  const std::vector<std::vector<std::string>> bad{{"--topology", "cloud"},
                                                  {"--model", "/nowhere.json"},
                                                  {"--algorithms", "rnig", "--to", "4"},
                                                  {"--from", "8", "--to", "4"},
                                                  {"--to", "20000"},
                                                  {"--algorithms", "ring,ring", "--to", "4"},
                                                  {"--algorithms", "ring,tree,direct,double_tree"},
                                                  {"--compute-ms", "nan", "--to", "4"},
                                                  {"--svg", "/nowhere/s.svg", "--to", "2"}};
  for (const auto& options : bad) {
    const auto r = testing::run_app(0, "scaling", options);
    INFO(options[0] << ' ' << options[1]);
    CHECK(r.exit_code == 6);
    CHECK(testing::error_lines("scaling", r.err).size() == 1);
    CHECK(r.out.empty());
  }
}
