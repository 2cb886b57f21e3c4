#include "labs/apps/common/command_line.hpp"

#include "runtime/base/error.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::apps;

namespace {

struct Values {
  std::string name = "none";
  int steps = 1;
  double rate = 0.5;
  std::uint64_t seed = 0;
  std::vector<int> devices;
  bool json = false;
};

void read(Values& v, std::vector<const char*> words) {
  CommandLine app("Reads.", "reader");
  app.add_option("--name", v.name, "any text");
  auto* steps = app.add_option("-n,--steps", v.steps, "a number")->check(whole(-5, 9));
  app.add_option("--rate", v.rate, "another")->excludes(steps);
  app.add_option("--seed", v.seed, "one without a check");
  app.add_option("--devices", v.devices, "a list")->separated_by_commas(3);
  app.add_flag("--json", v.json, "a flag");
  app.refuse("-g,--gpus", "-g,--gpus: use --devices");
  words.insert(words.begin(), "reader");
  const bool read = app.parse(static_cast<int>(words.size()), words.data());
  REQUIRE(read);
}

Values given(const std::vector<const char*>& words) {
  Values v;
  read(v, words);
  return v;
}

// Returns the message without the words that end all messages.
std::string refused(const std::vector<const char*>& words) {
  Values v;
  try {
    read(v, words);
  } catch (const UsageError& e) {
    const std::string text = e.what(), end = "reader --help lists the options";
    REQUIRE(text.size() > end.size() + 2);
    REQUIRE(text.substr(text.size() - end.size()) == end);
    return text.substr(0, text.size() - end.size() - 1);
  }
  return "";
}

}  // namespace

TEST_CASE("an empty value after = is a value, and the next word is not", "[command_line]") {
  Values v = given({"--name=", "--json", "-n", "2"});
  CHECK(v.name.empty());
  CHECK(v.json);
  CHECK(v.steps == 2);
  CHECK(given({"--name", "--name=", "--json"}).name == "--name=");  // the second word is the value
  CHECK(given({"--json", "--name="}).name.empty());
  CHECK_THAT(refused({"--steps=", "3"}), ContainsSubstring("--steps: '' is not a whole number"));
  CHECK_THAT(refused({"--seed=", "--json"}), ContainsSubstring("--seed: '' is not a whole number"));

  CommandLine app("Starts.", "starter");
  std::string name;
  app.add_option("--name", name, "any text");
  app.leave_the_rest();
  const std::vector<const char*> words{"starter", "--name=", "program", "--name=", "x"};
  REQUIRE(app.parse(static_cast<int>(words.size()), words.data()));
  CHECK(name.empty());
  CHECK(app.rest() == std::vector<std::string>{"program", "--name=", "x"});
}

TEST_CASE("options are read, the last one counts, and lists take all", "[command_line]") {
  const Values v = given({"--name", "--odd", "-n3", "-n", "-4", "--seed=18446744073709551615",
                          "--devices", "1,2", "--devices", "3", "--json"});
  CHECK(v.name == "--odd");
  CHECK(v.steps == -4);
  CHECK(v.seed == 18'446'744'073'709'551'615U);
  CHECK(v.devices == std::vector<int>{1, 2, 3});
  CHECK(v.json);
  CHECK(v.rate == 0.5);
  CHECK(given({"--name", ""}).name.empty());
  CHECK(given({"--rate", "1e-3"}).rate == 1e-3);
}

TEST_CASE("a misspelt option is named as typed, with the nearest one", "[command_line]") {
  CHECK(refused({"--stepz", "3"}) == "--stepz: unknown option; did you mean --steps?");
  CHECK(refused({"--setps=3"}) == "--setps: unknown option; did you mean --steps?");
  CHECK(refused({"--step", "3"}) == "--step: unknown option; did you mean --steps?");
  CHECK(refused({"--device", "3"}) == "--device: unknown option; did you mean --devices?");
  CHECK(refused({"--json", "--nam", "x", "--rat", "1"}) ==
        "--nam: unknown option; did you mean --name?");
  CHECK(refused({"--frobnicate"}) == "--frobnicate: unknown option;");
  CHECK(refused({"-z"}) == "-z: unknown option;");
  // The value of an option is not taken for an option, and a refused option is not suggested.
  CHECK(refused({"--name", "--stepz", "--rat", "1"}) ==
        "--rat: unknown option; did you mean --rate?");
  CHECK(refused({"--gpu", "3"}) == "--gpu: unknown option;");
}

TEST_CASE("what is wrong with a value is said in one line", "[command_line]") {
  CHECK(refused({"--steps", "010"}) == "--steps: '010' is not a whole number from -5 to 9;");
  CHECK(refused({"--rate", "nan"}) == "--rate: 'nan' is not a number;");
  CHECK(refused({"--seed", "-1"}) ==
        "--seed: '-1' is not a whole number from 0 to 18446744073709551615;");
  CHECK(refused({"--steps"}) == "--steps needs a value;");
  CHECK(refused({"one", "two"}) == "one two: unexpected argument;");
  CHECK(refused({"-g", "2"}) == "-g,--gpus: use --devices;");
  CHECK(refused({"--gpus", "--stepz"}) == "-g,--gpus: use --devices;");
  CHECK_THAT(refused({"--steps", "1", "--rate", "1"}), ContainsSubstring("excludes"));
}
