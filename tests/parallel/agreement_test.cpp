// The ranks compare their settings when they meet, or when a program requests it. All ranks get the
// same message.
#include "runtime/parallel/agreement.hpp"

#include <algorithm>

#include "runtime/nn/layers.hpp"
#include "tests/parallel/ranks.hpp"

using namespace ringsmith;
using namespace ringsmith::test;
using comm::Settings;

namespace {

using SettingsOf = std::function<Settings(int rank)>;

// Returns each rank's message. The group must still work afterwards.
std::vector<std::string> said(int world, const SettingsOf& settings) {
  return run_ranks<std::string>(world, [&](const Group& group) {
    std::string words = complaint_of([&] { require_agreement(*group, settings(group->rank())); });
    float ones = 1;
    group->all_reduce(std::span(&ones, 1));
    return ones == static_cast<float>(group->size()) ? words : "the group is broken: " + words;
  });
}

// Returns the message, which must be the same on every rank.
std::string complaint(int world, const SettingsOf& settings) {
  const auto words = said(world, settings);
  for (const std::string& each : words) REQUIRE(each == words[0]);
  return words[0];
}

}  // namespace

TEST_CASE("ranks that were told the same agree, in any order of the names", "[agreement]") {
  for (const int world : {1, 2, 3, 5}) {
    CHECK(complaint(world, [](int) { return Settings{}; }).empty());
    CHECK(complaint(world, [](int rank) {
            Settings s{{"--lr", "0.1"}, {"", ""}, {"a 3:b\n", std::string("\0:\n9", 4)}};
            std::rotate(s.begin(), s.begin() + rank % 3, s.end());
            return s;
          }).empty());
    CHECK(complaint(world, [](int) {
            return Settings{{"text", std::string(300'000, 'x')}};
          }).empty());
  }
}

TEST_CASE("the first difference is named, with all values and ranks", "[agreement]") {
  const auto lr = [](std::vector<int> odd, const std::string& value) {
    return [=](int rank) {
      const bool other = std::ranges::find(odd, rank) != odd.end();
      return Settings{
          {"--steps", "7"}, {"--lr", other ? value : "0.1"}, {"--z", std::to_string(rank)}};
    };
  };
  const std::string remedy = ": use the same value on all ranks";
  CHECK(complaint(2, lr({1}, "0.5")) == "--lr is 0.1 on rank 0 and 0.5 on rank 1" + remedy);
  CHECK(complaint(2, lr({0}, "0.5")) == "--lr is 0.5 on rank 0 and 0.1 on rank 1" + remedy);
  CHECK(complaint(3, lr({1}, "0.5")) == "--lr is 0.1 on ranks 0, 2 and 0.5 on rank 1" + remedy);
  CHECK(complaint(5, lr({1, 4}, "")) ==
        "--lr is 0.1 on ranks 0, 2, 3 and '' on ranks 1, 4" + remedy);
  CHECK(complaint(3, [](int rank) {
          return Settings{{"--lr", std::to_string(rank)}};
        }) == "--lr is 0 on rank 0, 1 on rank 1 and 2 on rank 2" + remedy);
  CHECK(complaint(2, [](int rank) {
          return Settings{{"--b", "1"}, {"--b", rank == 0 ? "2" : "3"}};
        }) == "--b is 1, 2 on rank 0 and 1, 3 on rank 1" + remedy);
}

TEST_CASE("a name that only some ranks have is named, and who lacks it", "[agreement]") {
  const auto without = [](std::vector<int> lacking) {
    return [=](int rank) {
      Settings s{{"--lr", "0.1"}};
      if (std::ranges::find(lacking, rank) == lacking.end()) s.emplace_back("--x", "3");
      return s;
    };
  };
  const std::string remedy = ": use the same value on all ranks";
  CHECK(complaint(2, without({1})) == "--x is 3 on rank 0, but rank 1 has no --x" + remedy);
  CHECK(complaint(2, without({0})) == "--x is 3 on rank 1, but rank 0 has no --x" + remedy);
  CHECK(complaint(5, without({0, 2, 3})) ==
        "--x is 3 on ranks 1, 4, but ranks 0, 2, 3 have no --x" + remedy);
  CHECK(complaint(3, [](int rank) {
          return rank == 2 ? Settings{} : Settings{{"--x", std::to_string(rank)}};
        }) == "--x is 0 on rank 0 and 1 on rank 1, but rank 2 has no --x" + remedy);
}

TEST_CASE("long values are shown where they differ, on one line", "[agreement]") {
  for (const std::size_t at : {0, 39, 40, 41, 5000, 99'999}) {
    const std::string words = complaint(2, [&](int rank) {
      std::string text(100'000, 'x');
      text[at] = rank == 0 ? 'a' : 'b';
      return Settings{{"text", text}};
    });
    INFO(at << ": " << words);
    CHECK(words.size() < 250);
    CHECK_THAT(words, ContainsSubstring(" on rank 1: use the same value on all ranks"));
    CHECK(words.find('a', words.find(" is ") + 4) < words.find(" on rank 0"));
    CHECK_THAT(words, ContainsSubstring(at == 0 ? " b" : "xb"));
  }
  const std::string words = complaint(2, [](int rank) {
    return Settings{{"text", rank == 0 ? "one\ntwo\x1b[2J" : "one two "}};
  });
  CHECK(words ==
        "text is one\\ntwo\\x1b[2J on rank 0 and 'one two ' on rank 1: use the same value on all "
        "ranks");
}

TEST_CASE("settings are compared when the ranks meet, before they connect", "[agreement]") {
  for (const int world : {2, 3, 5}) {
    const auto meet = [&](const std::function<void(comm::GroupOptions&, int)>& adapt) {
      return complaint_of([&] {
        run_threads<int>(
            world, [](comm::ProcessGroup& group) { return group.size(); }, {}, adapt);
      });
    };
    const std::string last = " on rank " + std::to_string(world - 1) + ": use the same";
    CHECK(meet([](comm::GroupOptions& o, int) { o.settings = {{"--lr", "1"}}; }).empty());
    CHECK_THAT(meet([&](comm::GroupOptions& o, int rank) {
                 o.settings = {{"long", std::string(3000, 'x')},
                               {"--lr", rank == world - 1 ? "0.5" : "0.1"}};
                 if (rank == world - 1) o.sockets = 2;
               }),
               ContainsSubstring("--lr is 0.1 on rank") && ContainsSubstring(" and 0.5" + last));
    CHECK_THAT(meet([&](comm::GroupOptions& o, int rank) {
                 if (rank == world - 1) o.settings = {{"--lr", "0.5"}};
               }),
               ContainsSubstring("--lr is 0.5" + last.substr(0, last.find(':'))) &&
                   ContainsSubstring(" no --lr: use the same"));
    // The group's options are compared even if a program gives no settings.
    CHECK_THAT(meet([&](comm::GroupOptions& o, int rank) {
                 if (rank == world - 1) o.sockets = 2;
               }),
               ContainsSubstring("GroupOptions::sockets is 1 on rank") &&
                   ContainsSubstring(" and 2" + last));
  }
}

TEST_CASE("a model as settings: names, dtypes and shapes, of buffers too", "[agreement]") {
  const BatchNorm2d norm(3);
  CHECK(settings_of(norm) == Settings{{"parameter 'weight'", "f32[3]"},
                                      {"parameter 'bias'", "f32[3]"},
                                      {"buffer 'running_mean'", "f32[3]"},
                                      {"buffer 'running_var'", "f32[3]"},
                                      {"buffer 'num_batches_tracked'", "i64[]"}});
}
