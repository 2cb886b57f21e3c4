// Runs flight_reader on files that are not recorders, are truncated, or are forged.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/comm/failure/last_words.hpp"
#include "tests/fault/flight_runs.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;
using testing::TemporaryFolder;

TEST_CASE("flight_reader refuses what is no recorder, and a folder without any",
          "[fault][flight]") {
  const TemporaryFolder folder;
  auto read = reader({folder.path});
  CHECK(read.exit_code == 6);
  CHECK_THAT(read.err, ContainsSubstring("no flight recorder in "));
  testing::write_text(folder / "flight-world-rank0", "not a recorder");
  read = reader({folder.path});
  CHECK(read.exit_code == 6);
  CHECK_THAT(read.err, ContainsSubstring("flight-world-rank0' is not a flight recorder"));
  const FlightHeader header;
  testing::write_text(folder / "flight-world-rank0",
                      std::string(reinterpret_cast<const char*>(&header), sizeof header));
  CHECK_THROWS_WITH(read_flight(folder / "flight-world-rank0"),
                    ContainsSubstring("has the wrong size"));
  std::string whole(sizeof(FlightHeader) + sizeof(SiteText) * kSites + sizeof(Flight), '\0');
  FlightHeader stranger;
  stranger.bytes = whole.size();
  std::memcpy(whole.data(), &stranger, sizeof stranger);
  testing::write_text(folder / "flight-world-rank0", whole);
  CHECK_THROWS_WITH(read_flight(folder / "flight-world-rank0"),
                    ContainsSubstring("is corrupt: rank -1 of 0"));
  read = reader({folder / "nowhere"});
  CHECK(read.exit_code == 6);
  CHECK_THAT(read.err, ContainsSubstring("nowhere' is not a folder"));
}

TEST_CASE("flight_reader leaves out what it cannot read, and waits for nothing",
          "[fault][flight]") {
  const TemporaryFolder folder;
  const auto logs = logs_of(folder, 2, [](ProcessGroup& g) {
    all_reduce(g, 100, 5);
    all_reduce(g, g.rank() == 1 ? 8 : 7);
  });
  REQUIRE(logs.size() == 2);
  REQUIRE(mkfifo((folder / "flight-world-rank7").c_str(), 0600) == 0);
  testing::write_text(folder / "flight-world-rank8\x1b[2J", "not a recorder");
  auto read = reader({folder.path});
  INFO(read.out << read.err);
  CHECK(read.exit_code == 1);
  CHECK_THAT(read.err, ContainsSubstring("rank7' is not a regular file"));
  CHECK_THAT(read.err, ContainsSubstring("rank8\\x1b[2J' is not a flight recorder"));
  CHECK_THAT(read.out, ContainsSubstring("first divergence"));
  // If the files show no divergence, the exit code is 6 if a file is unreadable, otherwise 0.
  std::string empty(sizeof(FlightHeader) + sizeof(SiteText) * kSites + sizeof(Flight), '\0');
  FlightHeader only;
  only.bytes = empty.size();
  only.rank = 0;
  only.world = 2;
  std::memcpy(empty.data(), &only, sizeof only);
  testing::write_text(folder / "flight-world-rank0", empty);
  std::filesystem::remove(folder / "flight-world-rank1");
  CHECK(reader({folder.path}).exit_code == 6);
  std::filesystem::remove(folder / "flight-world-rank7");
  std::filesystem::remove(folder / "flight-world-rank8\x1b[2J");
  read = reader({folder.path});
  CHECK(read.exit_code == 0);  // a rank without a file, e.g. on a lost host, is only reported
  CHECK_THAT(read.out, ContainsSubstring("1 of 2 ranks left a recorder"));
}

TEST_CASE("flight_reader shows control characters that a recorder holds", "[fault][flight]") {
  const TemporaryFolder folder;
  const auto logs = logs_of(folder, 2, [](ProcessGroup& g) { all_reduce(g, g.rank() + 1); });
  REQUIRE(logs.size() == 2);
  for (const int rank : {0, 1}) {
    const std::string path = folder / ("flight-world-rank" + std::to_string(rank));
    FlightHeader header = read_flight(path).header;
    std::strcpy(header.host, "\x1b[31mhost");
    std::strcpy(header.group, "\x1b]0;title\a");
    std::strcpy(header.text, "\x1b[2Jall is well");
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.write(reinterpret_cast<const char*>(&header), sizeof header);
  }
  const auto read = reader({folder.path, "--all"});
  INFO(read.out << read.err);
  CHECK(read.exit_code == 1);
  CHECK(read.out.find('\x1b') == std::string::npos);
  CHECK(read.out.find('\a') == std::string::npos);
  CHECK_THAT(read.out, ContainsSubstring("\\x1b[31mhost") && ContainsSubstring("\\x1b]0;title") &&
                           ContainsSubstring("\\x1b[2Jall is well"));
}

TEST_CASE("a recorder with damage anywhere is read or refused, and soon", "[fault][flight]") {
  const TemporaryFolder folder;
  const auto logs = logs_of(folder, 2, [](ProcessGroup& g) {
    for (int i = 0; i < 20; ++i) all_reduce(g, 100, 5);
    all_reduce(g, g.rank() == 1 ? 8 : 7);
  });
  REQUIRE(logs.size() == 2);
  const std::string path = folder / "flight-world-rank0";
  const std::string whole = testing::read_text(path);
  std::mt19937 random(5);
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string bytes = whole;
    // Mostly damages the calls, because most of the file is unused.
    const std::size_t from = i % 4 == 0 ? 16 : whole.size() - sizeof(Flight);
    const std::size_t room = i % 4 == 0 ? whole.size() - from : 24 * sizeof(FlightEntry);
    for (unsigned n = 1 + random() % 3; n > 0; --n)
      bytes[from + random() % room] = static_cast<char>(random());
    testing::write_text(path, bytes);
    try {
      const FlightLog log = read_flight(path);
      for (const FlightRecord& r : log.records) REQUIRE_FALSE(r.describe().empty());
      (void)first_divergence({log, logs[1]});
    } catch (const UsageError& e) {
      ++refused;
      REQUIRE_THAT(e.what(), ContainsSubstring("'" + path + "' is"));
    }
  }
  CHECK(refused > 20);
}

TEST_CASE("a recorder replaces files only, and is written through no link", "[fault][flight]") {
  const TemporaryFolder folder;
  const auto report = std::make_unique<RankReport>();
  const auto flight = std::make_unique<Flight>();
  FlightHeader whose;
  whose.rank = whose.written_by = 0;
  whose.world = 1;
  std::strcpy(whose.group, "world");
  const std::string path = folder / "flight-world-rank0", other = folder / "other";
  testing::write_text(other, "precious");
  std::filesystem::create_symlink(
      other, folder / (".flight-world-rank0-by-0-" + std::to_string(getpid())));
  const FlightFile file(folder.path, whose, report.get(), flight.get());
  const auto stays = [&](const std::function<bool()>& as_it_was) {
    for (const bool replace : {true, false}) CHECK_FALSE(file.write(replace));
    CHECK(as_it_was());
    std::filesystem::remove(path);
  };
  std::filesystem::create_symlink(other, path);
  stays([&] { return std::filesystem::is_symlink(path); });
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  stays([&] { return std::filesystem::is_fifo(path); });
  std::filesystem::create_directory(path);
  stays([&] { return std::filesystem::is_directory(path); });
  CHECK(file.write(false));
  CHECK(file.write(true));
  CHECK(read_flight(path).records.empty());
  CHECK(testing::read_text(other) == "precious");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 3);
}
