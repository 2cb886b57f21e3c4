#include <algorithm>
#include <sstream>

#include "labs/apps/doctor/findings.hpp"
#include "runtime/comm/schedule/select.hpp"
#include "tests/apps/programs.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::apps;
using namespace ringsmith::testing;

namespace {

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) widest = std::max(widest, line.size());
  return widest;
}

// Returns a pair's row of the table, e.g. "0-1  shm  8.6  3.59  (1)".
std::vector<std::string> row_of(const std::string& text, const std::string& pair) {
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::vector<std::string> row;
    for (std::string word; words >> word;) row.push_back(word);
    if (!row.empty() && row[0] == pair) return row;
  }
  return {};
}

}  // namespace

TEST_CASE("findings are filled into lines, with the remedy below", "[doctor]") {
  const Findings findings{
      {Finding::Verdict::ok, "cores", "2"},
      {Finding::Verdict::warn, "memlock", "64 KiB: RDMA registers more than that", "ulimit -l"}};
  CHECK(render(findings, 100) ==
        "ok    cores         2\n"
        "warn  memlock       64 KiB: RDMA registers more than that\n"
        "                    remedy: ulimit -l\n");
  CHECK(render(findings, 40) ==
        "ok    cores         2\n"
        "warn  memlock       64 KiB: RDMA\n"
        "                    registers more than\n"
        "                    that\n"
        "                    remedy: ulimit -l\n");
  CHECK(worst_of(findings) == Finding::Verdict::warn);
  CHECK(worst_of({}) == Finding::Verdict::ok);
}

TEST_CASE("doctor alone: this machine, in 80 columns, and no more than it knows", "[doctor]") {
  const auto r = run_app(0, "doctor", {"--width", "80"});
  INFO(r.out << r.err);
  CHECK(r.exit_code == 0);
  CHECK(r.err.empty());
  CHECK(widest_line(r.out) <= 80);
  for (const char* subject :
       {"processor", "memory keys", "cores", "memory", "shared memory", "memlock", "open files",
        "addresses", "ptrace scope", "namespaces", "loopback", "clock", "network", "RDMA", "GPUs",
        "launchers", "VM", "verdict: jobs run"})
    CHECK_THAT(r.out, ContainsSubstring(subject));
  CHECK_THAT(r.out, ContainsSubstring("emulated ones"));
  CHECK_THAT(r.out, ContainsSubstring("ringrun --standalone --nproc-per-node 2 -- doctor"));
}

#ifdef RINGSMITH_VGPU  // only the emulator can deny peer access
TEST_CASE("doctor names the devices that cannot reach each other's memory", "[doctor]") {
  const std::string doctor = RINGSMITH_BINARY_DIR "/bin/doctor --width 200";
  const auto with = [&](const std::string& peers) {
    return run_program({"sh", "-c", "VGPU_DEVICES=3 VGPU_PEERS=" + peers + " exec " + doctor}).out;
  };
  CHECK_THAT(with("none"), ContainsSubstring("no peer access between 0-1, 0-2, 1-2:"));
  const std::string all = with("all");
  CHECK_THAT(all, ContainsSubstring("emulated ones") && !ContainsSubstring("no peer access"));
}
#endif

TEST_CASE("doctor on a job: how each pair is connected, why not better, what it takes",
          "[doctor]") {
  for (const std::string transport : {"auto", "tcp"}) {
    const auto r = run_app(3, "doctor", {"--transport", transport});
    INFO(r.out << r.err);
    REQUIRE(r.exit_code == 0);
    CHECK(widest_line(r.out) <= 100);
    CHECK_THAT(r.out, ContainsSubstring("3 ranks"));
    for (const char* pair : {"0-1", "0-2", "1-2"}) {
      const auto row = row_of(r.out, pair);
      REQUIRE(row.size() == 5);
      CHECK(row[1] == (transport == "tcp" ? "tcp" : "shm"));
      CHECK(std::stod(row[2]) > 0);
      CHECK(std::stod(row[3]) > 0);
      CHECK(row[4] == "(1)");
    }
    CHECK_THAT(r.out, ContainsSubstring("(1) cuda_ipc: data is in host memory"));
    if (transport == "tcp") CHECK_THAT(r.out, ContainsSubstring("shm: --transport tcp"));
    CHECK_THAT(r.out, ContainsSubstring("3 measured, none more than 3 times slower") ||
                          ContainsSubstring("the median of its kind"));
    CHECK_THAT(r.out, ContainsSubstring("verdict: jobs run"));
  }
}

TEST_CASE("doctor lists the choices of the runtime, every row, once per job", "[doctor]") {
  for (const int ranks : {0, 2}) {
    const auto r = run_app(ranks, "doctor", {"--algorithms", "--width", "80"});
    INFO(r.out << r.err);
    REQUIRE(r.exit_code == 0);
    CHECK(widest_line(r.out) <= 80);
    const auto rows = ringsmith::comm::table_of_choices();
    std::size_t end = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::string head = (i < 9 ? "\n " : "\n") + std::to_string(i + 1) + "  " + rows[i][0];
      end = r.out.find(head, end);
      REQUIRE(end != std::string::npos);
      CHECK(r.out.find(head, end + 1) == std::string::npos);
    }
  }
}

TEST_CASE("doctor says what is wrong with its options", "[doctor]") {
  const auto r = run_app(0, "doctor", {"--transport", "pigeons"});
  CHECK(r.exit_code == 6);
  CHECK(error_lines("doctor", r.err).size() == 1);
}
