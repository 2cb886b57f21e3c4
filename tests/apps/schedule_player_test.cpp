#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "tests/support/catch.hpp"

namespace {

struct Run {
  int code = -1;
  std::string out;  // both streams
};

Run player(const std::string& arguments) {
  const std::string command =
      std::string(RINGSMITH_BINARY_DIR) + "/bin/schedule_player " + arguments + " 2>&1";
  Run run;
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  char buffer[4096];
  for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) run.out.append(buffer, n);
  run.code = WEXITSTATUS(pclose(pipe));
  return run;
}

std::size_t lines(const std::string& text) {
  std::size_t n = 0;
  for (const char c : text) n += c == '\n' ? 1 : 0;
  return n;
}

}  // namespace

TEST_CASE("schedule_player --algorithm ring --world 4 prints who sends what", "[player]") {
  const Run run = player("--algorithm ring --world 4 --check --simulate");
  CHECK(run.code == 0);
  CHECK_THAT(run.out, ContainsSubstring("1     c3 -> 2   c2 += 0       .1.. .1.. 01.3 01.."));
  CHECK_THAT(run.out, ContainsSubstring("proved"));
  CHECK_THAT(run.out, ContainsSubstring("simulated: 4 ranks"));
}

TEST_CASE("schedule_player draws into a file, and says so when it cannot", "[player]") {
  const auto file = std::filesystem::temp_directory_path() /
                    ("ringsmith_player_" + std::to_string(getpid()) + ".svg");
  CHECK(player("-q --svg " + file.string()).code == 0);
  CHECK(std::filesystem::file_size(file) > 1000);
  std::filesystem::remove(file);
  const Run run = player("-q --svg /nowhere/ring.svg");
  CHECK(run.code == 6);
  CHECK_THAT(run.out, ContainsSubstring("/nowhere/ring.svg"));
}

TEST_CASE("schedule_player --mistake: the checker names each one that is planted", "[player]") {
  const std::pair<const char*, const char*> faults[] = {
      {"skip", "unmatched send"},
      {"wrong_chunk", "foreign contribution"},
      {"adds_to_the_end", "doubled"},
      {"owner_off_by_one", "a copy overwrote it"},
      {"receive_first", "deadlock"},
      {"one_step_short", "missing contribution"},
      {"remainder_dropped", "elements 16 to 17 are in no chunk"}};
  for (const auto& [mistake, fault] : faults) {
    // Equal chunks, so that a size does not reveal a skipped or wrong chunk. Only a dropped
    // remainder needs unequal chunks.
    const bool equal = std::string(mistake) != "remainder_dropped";
    const std::string arguments =
        "-q --check -w 4 -n " + std::string(equal ? "16" : "18") + " --mistake " + mistake;
    const Run run = player(arguments);
    INFO(arguments << "\n" << run.out.substr(0, 600));
    CHECK(run.code == 1);
    CHECK_THAT(run.out, ContainsSubstring(fault));
  }
}

TEST_CASE("schedule_player --run says who is stuck, and --json says it to programs", "[player]") {
  const Run stuck = player("-q --run --slots 0");
  CHECK(stuck.code == 1);
  CHECK_THAT(stuck.out, ContainsSubstring("0 of 24 steps are done; stuck:"));
  CHECK_THAT(stuck.out, ContainsSubstring("rank 3 at step 0 waits for a free slot to rank 0"));
  const Run one = player("-q --run --slots 1");
  CHECK(one.code == 0);
  CHECK_THAT(one.out, ContainsSubstring("with 1 slot a connection every rank finishes"));

  const auto data = nlohmann::json::parse(player("--json --slots 0").out);
  CHECK(data.at("run").at("blocked").size() == 4);
  CHECK(data.at("faults").at(0).at("fault") == "deadlock");
  CHECK(data.at("simulation").is_null());
  const auto right = nlohmann::json::parse(player("--json --simulate").out);
  CHECK(right.at("run").at("blocked").empty());
  CHECK(right.at("run").at("happenings").size() == 48);  // 24 messages, each sent and received
  CHECK(right.at("simulation").at("messages") == 24);
  // After its last message, each chunk must hold the promised sum.
  auto held = right.at("start");
  for (const auto& h : right.at("run").at("happenings"))
    if (h.at("kind") == "received")
      held[h.at("rank").get<std::size_t>()]
          [right.at("steps")[h.at("rank").get<std::size_t>()][h.at("step").get<std::size_t>()]
               .at("recv_chunk")
               .get<std::size_t>()] = h.at("written").at(0);
  CHECK(held == right.at("promised"));
}

TEST_CASE("schedule_player refuses bad options in one line, with exit code 6", "[player]") {
  for (const char* bad :
       {"--world 0", "--world x", "--algorithm rnig", "--collective allreduce", "--frobnicate",
        "-c broadcast --root 4", "--root 1", "-c all_to_all -n 7", "-a direct -w 16384",
        "--check -w 1000", "--svg p.svg -w 17", "--alpha -1", "--slots -1", "surplus",
        "--slots 0 --simulate", "--mistake nobody", "-w 1 --mistake skip", "--json -w 257",
        "--mistake skip --simulate"}) {
    const Run run = player(bad);
    INFO(bad << "\n" << run.out.substr(0, 300));
    CHECK(run.code == 6);
    CHECK(lines(run.out) == 1);
  }
}
