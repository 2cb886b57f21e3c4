// tests/apps/look_at_report.py checks the page in a browser.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <sys/stat.h>

#include "labs/apps/train/operations.hpp"
#include "labs/apps/train/report_page.hpp"
#include "labs/apps/train/run_report.hpp"
#include "runtime/base/error.hpp"
#include "tests/apps/programs.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;
using namespace ringsmith::testing;
namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

std::string made(const TemporaryFolder& folder, const std::string& name,
                 const std::string& metrics) {
  fs::create_directory(folder / name);
  if (!metrics.empty()) write_text(folder / (name + "/metrics.jsonl"), metrics);
  return folder / name;
}

ordered_json data_in(const std::string& page) {
  const std::string begin = R"(id="data">)", end = "</script>";
  const auto from = page.find(begin) + begin.size();
  return ordered_json::parse(page.substr(from, page.find(end, from) - from));
}

std::string refusal(const std::string& folder) {
  try {
    (void)write_report(folder);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

const char* const kLine = R"({"step":1,"loss":2.5,"lr":0.1,"tokens_per_s":100.0,"step_ms":7.0})";

std::size_t width_of(const std::string& text) {
  std::size_t width = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) width = std::max(width, line.size());
  return width;
}

}  // namespace

TEST_CASE("text from outside never becomes markup of the page", "[report]") {
  const std::string hostile = "</script><script>alert(1)</script><!-- & \xff \x1b[31m";
  ordered_json data = {{"title", hostile}, {"steps", ordered_json::array()}};
  const std::string page = report_page(data);
  CHECK(page.find("alert(1)</script>") == std::string::npos);
  CHECK(page.find("<!--") == std::string::npos);
  CHECK(page.find('\xff') == std::string::npos);
  CHECK(page.find('\x1b') == std::string::npos);
  const std::string title = data_in(page).at("title");
  CHECK(title.substr(0, 34) == hostile.substr(0, 34));
}

TEST_CASE("a run that died has a report: of whole lines, without run.json and trace.json",
          "[report]") {
  const TemporaryFolder folder;
  const std::string run =
      made(folder, "run",
           std::string(kLine) + "\n" +
               R"({"step":2,"loss":null,"lr":0.1,"tokens_per_s":90.0,"step_ms":8.0})" + "\n" +
               R"({"step":2,"validation_loss":2.25,"validation_accuracy":0.5})" + "\n" +
               R"({"step":3,"loss":2.)");
  const std::string path = write_report(run);
  CHECK(path == run + "/report.html");
  const ordered_json data = data_in(read_text(path));
  CHECK(data.at("steps") == ordered_json({1, 2}));
  CHECK(data.at("series").at("loss") == ordered_json({2.5, nullptr}));
  CHECK(data.at("series").at("rate") == ordered_json({100.0, 90.0}));
  CHECK(data.at("unit") == "tokens");
  CHECK(data.at("evaluations").at(0) ==
        ordered_json({{"step", 2}, {"loss", 2.25}, {"accuracy", 0.5}}));
  CHECK(data.at("timeline").is_null());
  CHECK(data.at("operations").is_null());
  CHECK_THAT(data.at("subtitle").get<std::string>(), ContainsSubstring("has not ended"));
}

TEST_CASE("of a long run every k-th step is in the page, and the last one", "[report]") {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 1; i <= 9000; ++i)
    lines += R"({"step":)" + std::to_string(i) + R"(,"loss":1.5,"lr":0.1,"step_ms":7.0})" + "\n";
  const ordered_json data = report_data(made(folder, "run", lines));
  CHECK(data.at("every") == 3);
  CHECK(data.at("steps").size() == 3001);
  CHECK(data.at("steps").at(1) == 4);
  CHECK(data.at("steps").back() == 9000);
  CHECK(data.at("series").at("loss").size() == 3001);
}

TEST_CASE("folders of no run, and files that somebody changed, are refused by name", "[report]") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& run, const std::vector<std::string>& words) {
    const std::string said = refusal(run);
    for (const std::string& word : words) CHECK_THAT(said, ContainsSubstring(word));
    CHECK_THAT(said, ContainsSubstring("give the folder of a run"));
    CHECK(said.find('\n') == std::string::npos);
    CHECK_FALSE(fs::exists(run + "/report.html"));
  };
  refused(folder / "missing", {"missing", "no such folder"});
  refused(made(folder, "empty", ""), {"metrics.jsonl", "no such file"});
  refused(made(folder, "nothing", "\n"), {"metrics.jsonl", "line 1"});
  refused(made(folder, "words", std::string(kLine) + "\nhello\n"), {"metrics.jsonl", "line 2"});
  refused(made(folder, "steps",
               R"({"step":1})"
               "\n"),
          {"steps", "no finished step"});
  const std::string wrong = made(folder, "wrong", std::string(kLine) + "\n");
  write_text(wrong + "/run.json", "[1]");
  refused(wrong, {"run.json", "line 1"});
  write_text(wrong + "/run.json", "{}");
  write_text(wrong + "/trace.json", R"({"ph":"X","name":"step","cat":"frame","pid":0})"
                                    "\n");
  refused(wrong, {"trace.json", "line 1", "'ts'"});
  fs::remove(wrong + "/trace.json");
  write_text(wrong + "/run.json", R"({"communication_hook": 7})");
  refused(wrong, {"wrong", "has another type than a run writes"});
  for (const char* file : {"metrics.jsonl", "run.json", "trace.json"}) {
    const std::string odd = made(folder, std::string("odd-") + file, std::string(kLine) + "\n");
    fs::remove(odd + "/" + file);
    REQUIRE(mkfifo((odd + "/" + file).c_str(), 0600) == 0);
    refused(odd, {file, "it is a FIFO"});
  }
}

TEST_CASE("the step of middle length is drawn, every rank's spans cut to it, buckets numbered",
          "[report]") {
  const TemporaryFolder folder;
  const std::string run = made(folder, "run", std::string(kLine) + "\n");
  const auto span = [](const char* name, const char* cat, int pid, int ts, int dur,
                       const std::string& more = "") {
    return R"({"ph":"X","name":")" + std::string(name) + R"(","cat":")" + cat + R"(","pid":)" +
           std::to_string(pid) + R"(,"tid":0,"ts":)" + std::to_string(ts) + R"(.000,"dur":)" +
           std::to_string(dur) + ".000" + more + "},\n";
  };
  std::string trace;
  for (int i = 0; i < 7; ++i)  // the first two are warm-up; then 300, 100, 500, 200, 400
    trace += span("step", "frame", 0, 1000 * i,
                  std::vector<int>{900, 900, 300, 100, 500, 200, 400}[static_cast<std::size_t>(i)],
                  R"(,"args":{"step":)" + std::to_string(i + 1) + "}");
  trace += span("backward", "compute", 0, 2050, 100) + span("backward", "compute", 1, 1900, 150) +
           span("all_reduce", "comm", 1, 2200, 500, R"(,"args":{"bytes":64})") +
           span("all_reduce", "comm", 1, 2100, 50, R"(,"args":{"bytes":32})") +
           span("linear", "operation", 0, 2060, 10) + span("optimizer", "optim", 0, 3000, 10);
  write_text(run + "/trace.json", "{\"traceEvents\":[\n" + trace + "]}\n");
  const ordered_json timeline = report_data(run).at("timeline");
  CHECK(timeline.at("step") == 3);
  CHECK(timeline.at("ms") == 0.3);
  REQUIRE(timeline.at("ranks").size() == 2);
  CHECK(timeline.at("ranks").at(0).at("spans").size() == 1);
  const ordered_json& spans = timeline.at("ranks").at(1).at("spans");
  REQUIRE(spans.size() == 3);
  CHECK(spans.at(0).at("begin") == 0.0);
  CHECK(spans.at(0).at("ms") == 0.05);
  CHECK(spans.at(1).at("bucket") == 0);
  CHECK(spans.at(1).at("bytes") == 32.0);
  CHECK(spans.at(2).at("bucket") == 1);
  CHECK(spans.at(2).at("ms") == 0.1);  // cut off at the end of the step
  write_text(run + "/run.json", R"({"communication_hook":"powersgd"})");
  CHECK_FALSE(
      report_data(run).at("timeline").at("ranks").at(1).at("spans").at(1).contains("bucket"));
}

TEST_CASE("the table of operations: means of a step, rates, the rest of the step; 80 columns",
          "[profile]") {
  OperationProfile p;
  p.steps = 2;
  p.step_ns = 20'000'000;
  p.rows.push_back({"linear", 4, 8'000'000, 0, {16e9, 4e8}});
  p.rows.push_back({"a name that is much too long for a table of operations", 1, 2'000'000, 0, {}});
  for (int i = 0; i < 30; ++i)
    p.rows.push_back({"small" + std::to_string(i), 2, 100'000, 0, {1e3, 1e3}});
  const std::string table = operation_table(p, 5);
  CHECK(width_of(table) <= 80);
  CHECK_THAT(table, ContainsSubstring("linear") && ContainsSubstring("4.000") &&
                        ContainsSubstring("40.0 %") && ContainsSubstring("2000.0") &&
                        ContainsSubstring("50.0") && ContainsSubstring("27 others") &&
                        ContainsSubstring("between operations") && ContainsSubstring("3.500"));
  p.on_device = true;
  p.rows.resize(1);
  p.rows[0].device_ns = 4'000'000;
  CHECK_THAT(operation_table(p), ContainsSubstring("time on its GPU") &&
                                     ContainsSubstring("2.000") && ContainsSubstring("20.0 %"));
  const ordered_json json = to_json(p);
  CHECK(json.at("step_ms") == 10.0);
  CHECK(json.at("rows").at(0) == ordered_json({{"name", "linear"},
                                               {"calls", 2.0},
                                               {"ms", 2.0},
                                               {"host_ms", 4.0},
                                               {"flop", 8e9},
                                               {"bytes", 2e8}}));
}

TEST_CASE("--profile prints operations with their exact work, and puts them into the trace",
          "[programs]") {
  const TemporaryFolder folder;
  for (const std::string device : {"cpu", "cuda"}) {
    const auto r =
        run_app(2, "train_mlp",
                tiny_mlp() + std::vector<std::string>{"--profile", "--json", "--device", device,
                                                      "--run-dir", folder / device});
    INFO(r.err);
    REQUIRE(r.exit_code == 0);
    CHECK_THAT(r.err, ContainsSubstring("LinearBackward") && ContainsSubstring("GFLOP/s") &&
                          ContainsSubstring("between operations"));
    const auto operations = nlohmann::json::parse(r.out).at("operations");
    CHECK(operations.at("on_device") == (device == "cuda"));
    double sum = 0;
    nlohmann::json linear, backward;
    for (const auto& row : operations.at("rows")) {
      CHECK(row.at("ms") >= 0.0);
      sum += row.at("ms").get<double>();
      if (row.at("name") == "linear") linear = row;
      if (row.at("name") == "LinearBackward") backward = row;
    }
    CHECK(sum > 0);
    CHECK(sum <= operations.at("step_ms").get<double>());
    // 6 samples, and layers of 784 x 8, 8 x 8 and 8 x 10. The first layer's input needs no
    // gradient.
    const double weights = 784 * 8 + 8 * 8 + 8 * 10;
    REQUIRE(linear.is_object());
    CHECK(linear.at("calls") == 3.0);
    CHECK(linear.at("flop") == 2 * 6 * weights);
    REQUIRE(backward.is_object());
    CHECK(backward.at("calls") == 3.0);
    CHECK(backward.at("flop") == 2 * 6 * (weights + 8 * 8 + 8 * 10) + 6 * (8 + 8 + 10));

    int spans = 0;
    const auto trace = nlohmann::json::parse(read_text(folder / (device + "/trace.json")));
    for (const auto& e : trace.at("traceEvents"))
      if (e.at("ph") == "X" && e.at("cat") == "operation" && e.at("name") == "linear") {
        CHECK(e.at("args").at("flop") > 0);
        ++spans;
      }
    CHECK(spans >= 2 * 4 * 3);  // ranks, steps, layers
  }
}

TEST_CASE("--report: the page of a run, made again by train_report from the same files",
          "[programs]") {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  const auto r = run_app(
      2, "train_mlp",
      tiny_mlp() + std::vector<std::string>{"--report", "--eval-every", "2", "--run-dir", run});
  INFO(r.err);
  REQUIRE(r.exit_code == 0);
  CHECK_THAT(r.out,
             ContainsSubstring("files in " + run + ":\n") && ContainsSubstring(", report.html, "));
  const std::string page = read_text(run + "/report.html");
  const ordered_json data = data_in(page);
  CHECK(data.at("steps").size() == 4);
  CHECK(data.at("evaluations").size() == 2);
  CHECK(data.at("memory").size() == 2);
  for (const auto& m : data.at("memory")) {
    CHECK(m.at("resident") > 1e6);
    CHECK(m.at("communication") > 1e4);
    CHECK(m.at("communication") < m.at("resident"));
  }
  CHECK(data.at("operations").at("rows").size() > 5);
  CHECK(data.at("timeline").at("ranks").size() == 2);
  const auto again = run_app(0, "train_report", {run});
  INFO(again.err);
  REQUIRE(again.exit_code == 0);
  CHECK(again.out == run + "/report.html\n");
  CHECK(read_text(run + "/report.html") == page);
}

TEST_CASE("--report on a GPU: its memory after each step", "[programs]") {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  const auto r = run_app(
      2, "train_mlp",
      tiny_mlp() + std::vector<std::string>{"--report", "--device", "cuda", "--run-dir", run});
  INFO(r.err);
  REQUIRE(r.exit_code == 0);
  const ordered_json data = data_in(read_text(run + "/report.html"));
  // The device holds at least parameters and momentum: the weights and 26 biases, of 4 bytes.
  const ordered_json& bytes = data.at("series").at("device_bytes");
  REQUIRE(bytes.size() == 4);
  for (const auto& b : bytes) CHECK(b >= 2 * 4 * (784 * 8 + 8 * 8 + 8 * 10 + 26));
  for (const auto& m : data.at("memory")) CHECK(m.at("device") >= bytes.at(0).get<double>());
  CHECK(data.at("operations").at("on_device") == true);
}
