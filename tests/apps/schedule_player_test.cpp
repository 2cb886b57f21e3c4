// schedule_player as a user runs it: what it prints, and how it refuses.
#include <cstdio>
#include <filesystem>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

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

TEST_CASE("schedule_player refuses bad options in one line, with exit code 6", "[player]") {
  for (const char* bad :
       {"--world 0", "--world x", "--algorithm rnig", "--collective allreduce", "--frobnicate",
        "-c broadcast --root 4", "--root 1", "-c all_to_all -n 7", "-a direct -w 16384",
        "--check -w 1000", "--svg p.svg -w 17", "--alpha -1", "--slots 0", "surplus"}) {
    const Run run = player(bad);
    INFO(bad << "\n" << run.out.substr(0, 300));
    CHECK(run.code == 6);
    CHECK(lines(run.out) == 1);
  }
}
