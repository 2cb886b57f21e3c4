// Tests the flight recorder: the files of ranks that fail or are killed, and the conclusions from
// them.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>
#include <unistd.h>

#include "labs/apps/launch/flight_log.hpp"
#include "runtime/base/error.hpp"
#include "tests/fault/flight_runs.hpp"
#include "tests/fault/forked_ranks.hpp"
#include "tests/support/alive.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/tiny_files.hpp"
#include "tests/support/transport.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;
using testing::TemporaryFolder;

namespace {

// A bootstrap of ranks whose launcher ends all others when one dies.
struct Launched : Bootstrap {
  explicit Launched(std::shared_ptr<Bootstrap> the_rest) : rest(std::move(the_rest)) {}
  [[nodiscard]] int rank() const override { return rest->rank(); }
  [[nodiscard]] int size() const override { return rest->size(); }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override {
    return rest->all_gather(record);
  }
  [[nodiscard]] bool ends_survivors() const override { return true; }
  std::shared_ptr<Bootstrap> rest;
};

}  // namespace

TEST_CASE("each rank of a group that fails leaves its last operations", "[fault][flight]") {
  const TemporaryFolder folder;
  const auto logs = logs_of(folder, 3, [](ProcessGroup& g) {
    all_reduce(g, 100, 5);
    all_reduce(g, g.rank() == 2 ? 8 : 7);
  });
  REQUIRE(logs.size() == 3);
  for (const FlightLog& log : logs) {
    REQUIRE(log.records.size() == 6);
    for (std::size_t i = 0; i < 6; ++i) {
      const FlightRecord& r = log.records[i];
      CHECK(r.number == i + 1);
      CHECK(r.sequence == i);
      CHECK(r.started > 0);
      CHECK((r.ended != 0) == (i < 5));
      CHECK((r.ended == 0 || r.ended >= r.started));
      CHECK_THAT(r.site, ContainsSubstring("flight_runs.hpp:"));
    }
    CHECK(log.header.kind == FailureKind::mismatch);
    CHECK(log.header.written_by == log.header.rank);
  }
  CHECK(logs[0].records[5].call.describe() == "all_reduce(sum, f32, 7)");
  CHECK(logs[2].records[5].call.describe() == "all_reduce(sum, f32, 8)");
  const auto found = first_divergence(logs);
  REQUIRE(found);
  CHECK(found->kind == Divergence::Kind::different);
  CHECK(found->sequence == 5);
  REQUIRE(found->parties.size() == 2);
  CHECK(found->parties[0].ranks.size() == 2);
  CHECK(found->parties[1].ranks[0]->header.rank == 2);

  const auto read = reader({folder.path});
  INFO(read.out << read.err);
  CHECK(read.exit_code == 1);
  CHECK_THAT(read.out, ContainsSubstring("group 'world': 3 of 3 ranks left a recorder"));
  CHECK_THAT(read.out, ContainsSubstring("first divergence: collective #5: the ranks differ"));
  CHECK_THAT(read.out, ContainsSubstring("rank 2: all_reduce(sum, f32, 8) at flight_runs.hpp:"));
  CHECK_THAT(read.out, ContainsSubstring("all ranks: all_reduce(sum, f32, 100) at flight_runs"));

  // Without rank 2's file, the reader knows nothing about rank 2.
  for (const auto& entry : std::filesystem::directory_iterator(folder.path))
    if (read_flight(entry.path()).header.rank == 2) std::filesystem::remove(entry.path());
  const auto rest = reader({folder.path});
  INFO(rest.out << rest.err);
  CHECK_THAT(rest.out, ContainsSubstring("group 'world': 2 of 3 ranks left a recorder"));
  CHECK_THAT(rest.out, ContainsSubstring("the ranks above: all_reduce(sum, f32, 100) at flight"));
}

TEST_CASE("the recorder keeps the last 1,024 operations", "[fault][flight]") {
  const TemporaryFolder folder;
  const auto logs = logs_of(folder, 2, [](ProcessGroup& g) {
    all_reduce(g, 3, 3000);
    std::vector<float> x(3);
    for (int i = 0; i < 10; ++i)
      if (g.rank() == 0)
        g.send(std::span(x), 1);
      else
        g.recv(std::span(x), 0);
    if (g.rank() == 0) all_reduce(g, 3);
    g.barrier();
  });
  REQUIRE(logs.size() == 2);
  for (const FlightLog& log : logs) {
    REQUIRE(log.records.size() == kFlightEntries);
    CHECK(log.records.back().number == 3011);
    CHECK(log.records.front().number == 3011 - kFlightEntries + 1);
    // Messages have their own sequence numbers.
    CHECK(log.records[kFlightEntries - 2].sequence == 9);
    CHECK(log.records[kFlightEntries - 2].is_message());
    CHECK(log.records.back().sequence == 3000);
  }
  const auto found = first_divergence(logs);
  REQUIRE(found);
  CHECK(found->sequence == 3000);
}

TEST_CASE("a rank that never comes is missing in the recorders", "[fault][flight]") {
  const TemporaryFolder folder;
  const auto logs = logs_of(
      folder, 3,
      [](ProcessGroup& g) {
        all_reduce(g, 100, 2);
        if (g.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(5));
        if (g.rank() != 1) all_reduce(g, 5);
        g.barrier();
      },
      2000);
  REQUIRE(logs.size() == 3);
  std::vector<FlightLog> others;
  others.push_back(logs[0]);
  others.push_back(logs[2]);
  auto found = first_divergence(others);
  REQUIRE(found);
  CHECK(found->kind == Divergence::Kind::unfinished);
  CHECK(found->sequence == 2);
  CHECK(logs[0].header.culprit == 1);
}

TEST_CASE("a killed rank's recorder is written by a survivor of its host", "[fault][flight]") {
  if (test_transport() == Transport::tcp) return;  // no rank can read another's memory
  const TemporaryFolder folder;
  const auto logs = logs_of(folder, 3, [](ProcessGroup& g) {
    all_reduce(g, 100, 4);
    if (g.rank() == 1) raise(SIGKILL);
    all_reduce(g, 100);
  });
  REQUIRE(logs.size() == 3);
  CHECK(logs[1].header.written_by != 1);
  CHECK(logs[1].records.size() == 4);
  const auto found = first_divergence(logs);
  REQUIRE(found);
  CHECK(found->kind == Divergence::Kind::missing);
  CHECK(found->sequence == 4);
  CHECK_FALSE(found->parties[1].call);
  const auto read = reader({folder.path, "--all"});
  INFO(read.out << read.err);
  CHECK_THAT(read.out, ContainsSubstring("rank 1 was killed: its recorder was written by rank "));
  CHECK_THAT(read.out, ContainsSubstring("rank 1: did not reach it"));
}

TEST_CASE("who is ended by the launcher writes the killed rank's recorder, too",
          "[fault][flight]") {
  if (test_transport() == Transport::tcp) return;
  const TemporaryFolder folder;
  const std::string place = folder / "pid";
  ForkedRanks ranks(2, [&](const std::shared_ptr<Bootstrap>& bootstrap, ForkedRanks&) {
    signal(SIGTERM, SIG_DFL);  // replaces Catch2's handler
    GroupOptions options;
    options.flight_folder = folder.path;
    const auto group = init_process_group(std::make_shared<Launched>(bootstrap), options);
    all_reduce(*group, 100, 4);
    if (group->rank() == 1) {
      std::ofstream(place + ".new") << getpid() << '\n';
      std::filesystem::rename(place + ".new", place);
      raise(SIGKILL);
    }
    // Rank 0 computes without checking its peers. It receives SIGTERM when rank 1 is gone.
    while (!std::filesystem::exists(place)) std::this_thread::yield();
    pid_t dead = 0;
    std::ifstream(place) >> dead;
    while (testing::alive(dead)) std::this_thread::yield();
    raise(SIGTERM);
  });
  const auto endings = ranks.wait_for_all(std::chrono::seconds(20));
  INFO(endings[0].errors);
  CHECK_THAT(endings[0].errors, ContainsSubstring("rank 1 (pid "));
  const FlightLog killed = read_flight(folder / "flight-world-rank1");
  CHECK(killed.header.written_by == 0);
  CHECK(killed.records.size() == 4);
  CHECK(read_flight(folder / "flight-world-rank0").header.written_by == 0);
}

TEST_CASE("a recorder that the disk has no room for is not cut, but missed aloud",
          "[fault][flight]") {
  const TemporaryFolder folder;
  GroupOptions options;
  options.timeout = std::chrono::seconds(10);
  options.flight_folder = folder.path;
  const auto outcomes = run_ranks(2, options, [](ProcessGroup& g) {
    const testing::TinyFiles full_disk(20'000);
    all_reduce(g, g.rank() + 1);
  });
  for (const Outcome& outcome : outcomes)
    CHECK_THAT(outcome.error, ContainsSubstring("flight-world-rank") &&
                                  ContainsSubstring("could not be written: the file is too") &&
                                  ContainsSubstring("MismatchError"));
  CHECK(std::filesystem::is_empty(folder.path));
}
