#include "labs/apps/train/run_files.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "labs/apps/common/files.hpp"
#include "labs/apps/train/progress.hpp"
#include "runtime/base/error.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/tiny_files.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;
namespace fs = std::filesystem;

namespace {

std::string read(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("the progress line never exceeds its width, and loses the least important first",
          "[progress]") {
  const ProgressState s{480, 1000, 2.31041, 21'412, "tokens", 3.14, 0.41, 52.4};
  for (int width = 0; width <= 200; ++width)
    REQUIRE(render_progress(s, width).size() <= static_cast<std::size_t>(width));
  const std::string wide = render_progress(s, 120);
  for (const char* part : {"[====", "480/1000", "loss 2.3104", "21.4k tokens/s", "comm 3.1 ms",
                           "exposed 0.4 ms", "0:52 left"})
    REQUIRE_THAT(wide, ContainsSubstring(part));
  const std::string narrow = render_progress(s, 40);
  REQUIRE_THAT(narrow, ContainsSubstring("480/1000") && ContainsSubstring("loss 2.3104"));
  REQUIRE(narrow.find("comm") == std::string::npos);
}

TEST_CASE("the loss on held-out data is in the line once there is one", "[progress]") {
  ProgressState s{3, 10, 2.5, 100, "tokens", 1, 1, 9};
  CHECK_THAT(render_progress(s, 120), !ContainsSubstring("held out"));
  s.held_out_loss = 2.25;
  CHECK_THAT(render_progress(s, 120), ContainsSubstring("loss 2.5000  held out 2.2500"));
}

TEST_CASE("the bar is full at the last step and survives absurd numbers", "[progress]") {
  ProgressState s{1000, 1000, 2, 1, "tokens", 0, 0, 0};
  REQUIRE(render_progress(s, 110).find("=]") != std::string::npos);
  s = {5, 0, std::nan(""), std::numeric_limits<double>::infinity(), "tokens", 0, 0, -1};
  REQUIRE_THAT(render_progress(s, 110), ContainsSubstring("nan") && ContainsSubstring("? left"));
}

TEST_CASE("durations and counts are short and rounded, not cut", "[progress]") {
  REQUIRE(format_duration(0.4) == "0:00");
  REQUIRE(format_duration(59.6) == "1:00");
  REQUIRE(format_duration(3723) == "1:02:03");
  REQUIRE(format_count(999.4) == "999");
  REQUIRE(format_count(999.6) == "1k");
  REQUIRE(format_count(21'449) == "21.4k");
  REQUIRE(format_count(3'050'000) == "3.05M");
}

TEST_CASE("not on a terminal, progress is plain lines: first, last, and seldom between",
          "[progress]") {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* memory = open_memstream(&text, &size);
  {
    Progress progress(Progress::Style::lines, memory);
    for (int i = 1; i <= 1000; ++i) progress.update({i, 1000, 1, 1, "tokens", 0, 0, 0});
  }
  std::fclose(memory);
  const std::string out(text, size);
  free(text);  // NOLINT: open_memstream's memory
  REQUIRE(out.find('\r') == std::string::npos);
  REQUIRE(out.find('\033') == std::string::npos);
  REQUIRE(out.starts_with("1/1000 "));
  REQUIRE_THAT(out, ContainsSubstring("\n1000/1000 "));
  REQUIRE(std::count(out.begin(), out.end(), '\n') <= 3);
}

TEST_CASE("JSON lines are on disk after every write, and NaN stays valid JSON", "[json]") {
  const testing::TemporaryFolder dir;
  const std::string path = (dir.path / "m.jsonl").string();
  JsonLines lines(path);
  lines.write({{"step", 1}, {"loss", 2.5}});
  REQUIRE(read(path) == "{\"step\":1,\"loss\":2.5}\n");
  lines.write({{"step", 2}, {"loss", std::nan("")}});
  std::istringstream in(read(path));
  int n = 0;
  for (std::string line; std::getline(in, line); ++n) REQUIRE(nlohmann::json::accept(line));
  REQUIRE(n == 2);
  REQUIRE_THROWS_WITH(JsonLines(path), ContainsSubstring(path) && ContainsSubstring("--run-dir"));
}

TEST_CASE("metrics go on after a step: later lines and one that was cut off go", "[json]") {
  const testing::TemporaryFolder dir;
  const std::string path = (dir.path / "m.jsonl").string();
  {
    JsonLines lines(path);
    for (int step = 1; step <= 4; ++step) lines.write({{"step", step}, {"loss", 0.5}});
  }
  std::ofstream(path, std::ios::app) << "{\"step\":5,\"lo";
  JsonLines(path, 3).write({{"step", 4}, {"loss", 7}});
  CHECK(read(path) ==
        "{\"step\":1,\"loss\":0.5}\n{\"step\":2,\"loss\":0.5}\n{\"step\":3,\"loss\":0.5}\n"
        "{\"step\":4,\"loss\":7}\n");
  JsonLines(path, 0).write({{"step", 1}});
  CHECK(read(path) == "{\"step\":1}\n");
  JsonLines((dir.path / "new.jsonl").string(), 3).write({{"step", 4}});
  CHECK(read(dir.path / "new.jsonl") == "{\"step\":4}\n");
}

TEST_CASE("a metrics line that does not fit on the disk is an error, not a silent loss", "[json]") {
  const testing::TemporaryFolder dir;
  JsonLines lines((dir.path / "lines").string());
  std::string message;
  try {
    const testing::TinyFiles full_disk(16);
    lines.write({{"text", std::string(1000, 'x')}});
  } catch (const Error& e) {
    message = e.what();
  }
  REQUIRE_THAT(message, ContainsSubstring("lines") && ContainsSubstring("File too large"));
}

TEST_CASE("run directories are new ones, and a refusal names the remedy", "[run_dir]") {
  const testing::TemporaryFolder dir;
  const std::string wanted = (dir.path / "a" / "b").string();
  REQUIRE(create_run_dir(wanted) == wanted);
  REQUIRE(create_run_dir(wanted) == wanted);  // the folder is still empty
  std::ofstream(wanted + "/metrics.jsonl") << "x";
  REQUIRE_THROWS_WITH(create_run_dir(wanted),
                      ContainsSubstring("not empty") && ContainsSubstring("--run-dir"));
  const std::string below_file = wanted + "/metrics.jsonl/run";
  REQUIRE_THROWS_WITH(create_run_dir(below_file),
                      ContainsSubstring(below_file) && ContainsSubstring("--run-dir"));
  REQUIRE_THROWS_AS(create_run_dir(wanted + "/metrics.jsonl"), UsageError);

  // A refused run may leave checkpoints/ with its lock. Such a folder does not count as in use.
  const std::string left = (dir.path / "left").string();
  fs::create_directories(left + "/checkpoints");
  std::ofstream(left + "/checkpoints/lock") << "pid 1";
  CHECK(create_run_dir(left) == left);
  CHECK(reopen_run_dir(left) == left);
  fs::create_directory(left + "/checkpoints/step-000100");
  CHECK_THROWS_WITH(create_run_dir(left),
                    ContainsSubstring("not empty") && ContainsSubstring("--resume auto"));
  CHECK(reopen_run_dir(left) == left);
  CHECK_THROWS_WITH(reopen_run_dir(wanted),
                    ContainsSubstring("holds other files, but no checkpoints"));
  CHECK(reopen_run_dir((dir.path / "fresh").string()) == (dir.path / "fresh").string());

  const fs::path before = fs::current_path();
  fs::current_path(dir.path);
  const std::string first = create_run_dir(""), second = create_run_dir("");
  fs::current_path(before);
  REQUIRE(first != second);
  REQUIRE(fs::is_directory(dir.path / first));
  REQUIRE(fs::is_directory(dir.path / second));
}

TEST_CASE("a model that does not fit is refused before training, and one that was trained is saved",
          "[run_dir]") {
  const testing::TemporaryFolder dir, home;
  const StateDict model{{"w", full({1000}, 3)}};
  const std::string folder = dir.path.string();
  {
    const testing::TinyFiles full_disk(2000);
    CHECK_THROWS_WITH(require_room_for_model(folder, model),
                      ContainsSubstring("model.safetensors") && ContainsSubstring("too large"));
  }
  CHECK_THROWS_WITH(require_room_for_model(folder + "/gone", model),
                    ContainsSubstring("No such file"));
  require_room_for_model(folder, model);
  CHECK(std::filesystem::is_empty(dir.path));

  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(home.path);
  std::string said;
  try {
    save_model(folder + "/gone", model, {{"steps", "7"}});
  } catch (const Error& e) {
    said = e.what();
  }
  std::filesystem::current_path(before);
  CHECK_THAT(said,
             ContainsSubstring("cannot write '" + folder + "/gone/model.safetensors': No such"));
  const std::string words = "; the trained model is in '";
  const std::size_t at = said.find(words);
  REQUIRE(at != std::string::npos);
  const std::string path = said.substr(at + words.size(), said.size() - at - words.size() - 1);
  CHECK(std::filesystem::path(path).parent_path() == std::filesystem::canonical(home.path));
  const Checkpoint saved = load_safetensors(path);
  CHECK(saved.tensors.at("w").to_vector<float>() == std::vector<float>(1000, 3));
  CHECK(saved.metadata.at("steps") == "7");
  save_model(folder, model, {});
  CHECK(std::filesystem::exists(folder + "/model.safetensors"));
}

TEST_CASE("results: room is tried before the work, and a text that does not fit is rescued") {
  const testing::TemporaryFolder dir, home;
  const std::string results = (dir.path / "results.json").string();
  {
    const testing::TinyFiles full_disk(20'000);
    CHECK_THROWS_WITH(apps::require_writable(results), ContainsSubstring("too large"));
  }
  apps::require_writable(results);
  CHECK(std::filesystem::is_empty(dir.path));

  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(home.path);
  std::string error;
  try {
    apps::write_file((dir.path / "gone" / "results.json").string(), "{}\n");
  } catch (const Error& e) {
    error = e.what();
  }
  std::filesystem::current_path(before);
  const std::string words = "; its text is in '";
  const std::size_t at = error.find(words);
  REQUIRE(at != std::string::npos);
  const std::string path = error.substr(at + words.size(), error.size() - at - words.size() - 1);
  CHECK(std::filesystem::path(path).extension() == ".json");
  std::ifstream rescued(path);
  CHECK(std::string(std::istreambuf_iterator<char>(rescued), {}) == "{}\n");
}

TEST_CASE("lines of an earlier run whose step is no whole number are dropped", "[json]") {
  const testing::TemporaryFolder dir;
  const std::string file = dir / "file";
  std::ofstream(file)
      << "{\"step\":1}\n{\"step\":[]}\n{\"step\":null}\n{\"step\":\"1\"}\n{\"step\":-1e300}\n"
         "{\"loss\":2}\n[1]\n{\"step\":18446744073709551615}\n{\"step\":2}\n";
  JsonLines(file, 2).write({{"step", 3}});
  CHECK(read(file) == "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
}

TEST_CASE("lines of an earlier run: a link is followed, what is no file is refused", "[json]") {
  const testing::TemporaryFolder dir;
  const std::string file = (dir.path / "file").string(), link = (dir.path / "link").string(),
                    fifo = (dir.path / "fifo").string();
  std::ofstream(file) << "{\"step\":1}\n{\"step\":2}\n";
  std::filesystem::create_symlink(file, link);
  JsonLines(link, 1).write({{"step", 9}});
  CHECK(std::filesystem::is_symlink(link));
  CHECK(read(file) == "{\"step\":1}\n{\"step\":9}\n");
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_THROWS_WITH(JsonLines(fifo, 1), ContainsSubstring("it is a FIFO"));
  CHECK_THROWS_WITH(JsonLines("/dev/full", 1), ContainsSubstring("it is a device"));
  CHECK_THROWS_WITH(JsonLines{link}, ContainsSubstring("File exists"));
}
