#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/catch.hpp"

namespace {

struct Run {
  int code = -1;
  std::string out;  // both streams
};

const std::string kBin = std::string(RINGSMITH_BINARY_DIR) + "/bin/";

// errors: whether to read standard error, too. False for JSON, because Open MPI may print a message
// there.
Run run(const std::string& command, bool errors = true) {
  const std::string cache = "XDG_CACHE_HOME=" + std::string(RINGSMITH_BINARY_DIR) + "/test-cache ";
  Run result;
  FILE* pipe = popen((cache + command + (errors ? " 2>&1" : "")).c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> buffer{};
  for (std::size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    result.out.append(buffer.data(), n);
  result.code = WEXITSTATUS(pclose(pipe));
  return result;
}

Run on_ranks(int world, const std::string& arguments, bool errors = true) {
  // Keeps AddressSanitizer from reporting Open MPI's own leaks at exit.
  return run(
      "ASAN_OPTIONS=\"$ASAN_OPTIONS:detect_leaks=0\" RINGSMITH_DEADLINE=60 " RINGSMITH_SOURCE_DIR
      "/tests/support/mpirun.sh " +
          std::to_string(world) + " " + kBin + arguments,
      errors);
}

constexpr const char* kPrograms[] = {"all_reduce", "all_gather", "reduce_scatter",
                                     "broadcast",  "reduce",     "alltoall",
                                     "gather",     "scatter",    "sendrecv"};

}  // namespace

TEST_CASE("every measuring program gets every element right on 3 ranks, in both kinds of memory",
          "[perf]") {
  for (const std::string program : kPrograms)
    for (const char* memory : {"own", "user"}) {
      const Run r = on_ranks(3, program + "_perf -b 4 -e 300K -f 40 -n 2 -w 1 --memory " + memory);
      INFO(program << " " << memory << "\n" << r.out);
      CHECK(r.code == 0);
      CHECK_THAT(r.out, ContainsSubstring("# Out of bounds values : 0 OK"));
    }
}

TEST_CASE("all operations, types and roots are measured and verified", "[perf]") {
  const Run ops = on_ranks(2, "all_reduce_perf -b 4K -o all -d all -n 2");
  INFO(ops.out);
  CHECK(ops.code == 0);
  CHECK_THAT(ops.out, ContainsSubstring("bf16    avg") && ContainsSubstring("u8    max"));
  const Run roots = on_ranks(3, "reduce_perf -b 4K -r all -n 2 --json", false);
  REQUIRE(roots.code == 0);
  const auto json = nlohmann::json::parse(roots.out);
  CHECK(json.at("results").size() == 3);
  CHECK(json.at("results")[2].at("root") == 2);
  CHECK(json.at("out_of_bounds") == 0);
}

TEST_CASE("the table's header names size and time, and each row has a cell for each column",
          "[perf]") {
  const Run r = on_ranks(2, "all_reduce_perf -b 1K -e 16K -f 4 -n 3 -I");
  std::istringstream lines(r.out);
  std::size_t columns = 0, rows = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::size_t n = 0;
    for (std::string word; words >> word;) ++n;
    if (line.find(" size ") != std::string::npos && line.find(" time ") != std::string::npos)
      columns = n - 1;  // without the '#'
    else if (columns > 0 && line[0] != '#') {
      CHECK(n == columns);
      ++rows;
    }
  }
  CHECK(rows == 3);
  CHECK_THAT(r.out, ContainsSubstring("rank   1 pid"));
}

TEST_CASE("a rank alone says so, and its bus bandwidth is 0", "[perf]") {
  const Run r = run(kBin + "all_reduce_perf -b 1K -n 2");
  CHECK(r.code == 0);
  CHECK_THAT(r.out, ContainsSubstring("one rank alone") &&
                        ContainsSubstring("# Avg bus bandwidth    : 0 GB/s"));
}

TEST_CASE("a calibration is kept and then used", "[perf]") {
  std::filesystem::remove_all(std::string(RINGSMITH_BINARY_DIR) + "/test-cache");
  const Run before = run(kBin + "all_reduce_perf -b 1K -n 2");
  CHECK_THAT(before.out, ContainsSubstring("built-in constants"));
  CHECK(run(kBin + "all_reduce_perf -b 1K -n 2 --calibrate").code == 0);
  const Run after = run(kBin + "all_reduce_perf -b 1K -n 2");
  CHECK_THAT(after.out, ContainsSubstring("calibrated on"));
  const std::string file =
      std::string(RINGSMITH_BINARY_DIR) + "/test-cache/ringsmith/calibration.json";
  std::ofstream(file) << "{ not json";
  const Run spoilt = run(kBin + "all_reduce_perf -b 1K -n 2");
  CHECK(spoilt.code == 0);
  CHECK_THAT(spoilt.out, ContainsSubstring("unreadable"));
  std::filesystem::remove(file);
  REQUIRE(mkfifo(file.c_str(), 0600) == 0);
  const Run odd = run(kBin + "all_reduce_perf -b 1K -n 2");
  CHECK(odd.code == 0);
  CHECK_THAT(odd.out, ContainsSubstring("unreadable"));
  const Run refused = run(kBin + "all_reduce_perf -b 1K -n 2 --calibrate");
  CHECK(refused.code == 6);
  CHECK_THAT(refused.out, ContainsSubstring("calibration.json': it is a FIFO"));
  std::filesystem::remove_all(std::string(RINGSMITH_BINARY_DIR) + "/test-cache");
}

TEST_CASE("over TCP and over several nodes there is a prediction, too, and a fastest algorithm",
          "[perf]") {
  const Run tcp = on_ranks(2, "all_reduce_perf -b 64K -n 2 --transport tcp");
  CHECK(tcp.code == 0);
  CHECK_THAT(tcp.out, ContainsSubstring("built-in constants") && ContainsSubstring("ratio"));
  const Run nodes = on_ranks(
      4,
      "all_reduce_perf -b 1K -e 1M -f 32 -n 2 --ranks-per-node 2 --algorithm fastest --place in");
  INFO(nodes.out);
  CHECK(nodes.code == 0);
  CHECK_THAT(nodes.out, ContainsSubstring("# fastest up to") &&
                            ContainsSubstring(", and above: ") &&
                            ContainsSubstring("Out of bounds values : 0 OK"));
}

TEST_CASE("wrong options are one line and exit code 6", "[perf]") {
  for (const char* bad :
       {"all_reduce_perf -t 2", "all_reduce_perf -g 2", "all_reduce_perf -z 1",
        "all_reduce_perf -b 4X", "all_reduce_perf -b 4M -e 1M", "all_reduce_perf -d f8",
        "all_reduce_perf -o avg -d i32", "all_reduce_perf -o mean", "all_reduce_perf -f 1",
        "all_reduce_perf --memory mine", "all_reduce_perf --algorithm rnig",
        "all_reduce_perf --ranks-per-node -1", "all_reduce_perf --device cuda --algorithm fastest",
        "all_reduce_perf -n 0", "all_reduce_perf -r 0", "broadcast_perf -r 1",
        "broadcast_perf --place out", "sendrecv_perf",
        "all_reduce_perf -b 1K -n 1 -J /nowhere/out.json"}) {
    const Run r = run(kBin + bad);
    INFO(bad << "\n" << r.out);
    CHECK(r.code == 6);
    std::size_t errors = 0, lines = 0;
    std::istringstream text(r.out);
    for (std::string line; std::getline(text, line); ++lines)
      errors += line.find("error:") != std::string::npos ? 1 : 0;
    CHECK(errors == 1);
    CHECK(lines == 1);
  }
}
