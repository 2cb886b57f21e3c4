// What every program does alike: --help within 80 columns, --version, and an answer to an option
// that is misspelt. The programs are those of the sources, so that a new one is tested too.
#include <algorithm>
#include <regex>
#include <set>

#include "tests/apps/programs.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::testing;

namespace {

// labs/apps/FOLDER/NAME.cpp with a main() is the program NAME; perf/main.cpp is each name in the
// table of perf/programs.cpp.
std::set<std::string> all_programs() {
  const std::filesystem::path apps = RINGSMITH_SOURCE_DIR "/labs/apps";
  std::set<std::string> out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(apps))
    if (entry.path().extension() == ".cpp" && entry.path().stem() != "main" &&
        read_text(entry.path()).find("\nint main(") != std::string::npos)
      out.insert(entry.path().stem());
  const std::string table = read_text(apps / "perf/programs.cpp");
  const std::regex row(R"(\{\.name = "([a-z_]+)\")");
  for (std::sregex_iterator at(table.begin(), table.end(), row), end; at != end; ++at)
    out.insert(at->str(1));
  return out;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

// The last of the options in a help text, "--json".
std::string last_option(const std::string& help) {
  const std::regex option(R"(^  (?:-[A-Za-z],)?(--[a-z][a-z_-]+).*)");
  std::string out;
  std::smatch found;
  for (const std::string& line : lines_of(help))
    if (std::regex_match(line, found, option)) out = found.str(1);
  return out;
}

}  // namespace

TEST_CASE("every program has its help in 80 columns, a version, and a hint at what was meant",
          "[programs]") {
  const std::set<std::string> programs = all_programs();
  CHECK(programs.size() >= 22);  // as many as there were when this was written
  std::set<std::string> versions;
  for (const std::string& program : programs) {
    INFO(program << ": if it was not built, add it to the programs that tests_apps depends on");
    const auto help = run_app(0, program, {"--help"});
    REQUIRE(help.exit_code == 0);
    CHECK(help.err.empty());
    CHECK(run_app(0, program, {"-h"}).out == help.out);
    // Closed standard streams become /dev/null.
    CHECK(run_program({"sh", "-c", "exec <&- >&- 2>&-; exec \"$0\" --help",
                       RINGSMITH_BINARY_DIR "/bin/" + program})
              .exit_code == 0);
    CHECK_THAT(help.out, ContainsSubstring("\n  -h,--help               print this text\n"
                                           "  --version               print the version\n"));
    CHECK_THAT(help.out, ContainsSubstring("\nUsage: " + program));
    for (const std::string& line : lines_of(help.out)) {
      INFO(line);
      CHECK(line.size() <= 80);
    }

    const auto version = run_app(0, program, {"--version"});
    CHECK(version.exit_code == 0);
    const std::string before = program + " (ringsmith) ";
    REQUIRE(version.out.rfind(before, 0) == 0);
    versions.insert(version.out.substr(before.size()));

    const std::string option = last_option(help.out);
    REQUIRE_FALSE(option.empty());
    const auto wrong = run_app(0, program, {option + "z", "3"});
    CHECK(wrong.exit_code == 6);
    CHECK(wrong.err == program + ": error: " + option + "z: unknown option; did you mean " +
                           option + "? " + program + " --help lists the options\n");
  }
  REQUIRE(versions.size() == 1);
  CHECK(std::regex_match(*versions.begin(), std::regex(R"(\d+\.\d+\.\d+\n)")));
}
