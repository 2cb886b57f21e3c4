// Tests what all programs share: --help within 80 columns, --version, and the hint for a misspelt
// option. The programs are found in the sources, so new ones are tested as well.
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

std::string last_option(const std::string& help) {
  const std::regex option(R"(^  (?:-[A-Za-z],)?(--[a-z][a-z_-]+).*)");
  std::string out;
  std::smatch found;
  for (const std::string& line : lines_of(help))
    if (std::regex_match(line, found, option)) out = found.str(1);
  return out;
}

// Returns the options of a help text that take a number: "--steps" -> "INT", "UINT" or "FLOAT".
std::vector<std::pair<std::string, std::string>> numeric_options(const std::string& help) {
  const std::regex option(R"(^  (?:-[A-Za-z],)?(--[a-z][a-z_-]+) (INT|UINT|FLOAT)\b.*)");
  std::vector<std::pair<std::string, std::string>> out;
  std::smatch found;
  for (const std::string& line : lines_of(help))
    if (std::regex_match(line, found, option)) out.emplace_back(found.str(1), found.str(2));
  return out;
}

// The program must exit with code 6 and print one line that contains these words.
void check_one_line(const std::string& program, const std::vector<std::string>& options,
                    const std::vector<std::string>& words) {
  const auto run = run_app(0, program, options);
  std::string line = program;
  for (const std::string& option : options) line += " '" + option + "'";
  INFO(line << "\n" << run.out << run.err);
  CHECK_FALSE(run.timed_out);
  CHECK(run.exit_code == 6);
  CHECK(lines_of(run.err).size() == 1);
  CHECK(run.err.rfind(program + ": error: ", 0) == 0);
  for (const std::string& word : words) CHECK_THAT(run.err, ContainsSubstring(word));
}

}  // namespace

TEST_CASE(
    "what is no number, or has no room in its type, is refused by every option that takes one",
    "[programs]") {
  const std::vector<std::string> never{"nan",  "inf", "-inf", "1e999", "0x10",
                                       "1.5x", "",    "+",    "1 2"};
  const std::vector<std::string> not_whole{"1e300", "1.5", "1e23", "18446744073709551616",
                                           "-9223372036854775809"};
  int options = 0;
  for (const std::string& program : all_programs())
    for (const auto& [option, type] : numeric_options(run_app(0, program, {"--help"}).out)) {
      ++options;
      std::vector<std::string> values = never;
      if (type != "FLOAT") values = values + not_whole;
      if (type == "INT") values = values + std::vector<std::string>{"9223372036854775808"};
      if (type == "UINT") values = values + std::vector<std::string>{"-1"};
      for (const std::string& value : values)
        check_one_line(program, {option + "=" + value}, {option, value.empty() ? "" : "'" + value});
    }
  CHECK(options >= 100);
  // None of these is an accepted number. A separate word that begins with "-" would be an option.
  const std::vector<std::string> bad{"nan", "inf", "1e999", "0x10", "1.5x", "+", "1 2"};
  for (const std::string& value : bad) {
    for (const std::string option : {"-b", "-e", "-i", "-f", "-r"})
      check_one_line("broadcast_perf", {option, value}, {"'" + value + "'"});
    for (const std::string option : {"--nproc-per-node", "--nnodes", "--master-port"})
      check_one_line("ringrun", {option, value, "true"}, {"'" + value});
  }
  check_one_line("broadcast_perf", {"-b", "0", "-e", "1K", "-f", "2"}, {"--minbytes 0"});
  for (const std::vector<std::string>& steps :
       {std::vector<std::string>{"-i", "1"}, {"-f", "1.0000000001"}})
    check_one_line("broadcast_perf", std::vector<std::string>{"-b", "8", "-e", "100G"} + steps,
                   {"--stepfactor", "--maxbytes"});
}

TEST_CASE("numbers that an option takes and nobody means end in one line, too", "[programs]") {
  const TemporaryFolder folder;
  const std::string text = write_text(folder / "text", std::string(4000, 'x'));
  // A program that accepted the number would fail at /proc/x, which cannot be created.
  const std::vector<std::string> nowhere{"--run-dir", "/proc/x"};
  const std::pair<std::string, std::vector<std::string>> programs[] = {
      {"train_mlp", tiny_mlp() + nowhere},
      {"train_gpt", tiny_gpt(text) + nowhere},
      {"train_images", tiny_images() + nowhere},
      {"all_reduce_perf", {"-b", "8", "-n", "1", "-w", "0", "-J", "/proc/x"}},
      {"dp_vs_ddp", {"--steps", "1", "--svg", "/proc/x"}},
      {"scaling", {"--svg", "/proc/x"}}};
  for (const auto& [program, stops] : programs)
    for (const auto& [option, type] : numeric_options(run_app(0, program, {"--help"}).out))
      for (const std::string value : {"-1", "0", "1e300", "9223372036854775808", "1e-300"})
        check_one_line(program, stops + std::vector<std::string>{option + "=" + value}, {});
}

TEST_CASE("every program has its help in 80 columns, a version, and a hint at what was meant",
          "[programs]") {
  const std::set<std::string> programs = all_programs();
  CHECK(programs.size() >= 22);
  std::set<std::string> versions;
  for (const std::string& program : programs) {
    INFO(program << ": if it was not built, add it to the programs that tests_apps depends on");
    const auto help = run_app(0, program, {"--help"});
    REQUIRE(help.exit_code == 0);
    CHECK(help.err.empty());
    CHECK(run_app(0, program, {"-h"}).out == help.out);
    // The program replaces closed standard streams with /dev/null.
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
