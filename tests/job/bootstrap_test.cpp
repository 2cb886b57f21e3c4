// Ranks, here threads, find each other through a store or a folder. If a rank is missing, duplicate
// or lost, all ranks get one clear error.
#include "runtime/job/bootstrap.hpp"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <sstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "runtime/base/error.hpp"
#include "runtime/comm/process_group.hpp"
#include "runtime/job/forked.hpp"
#include "runtime/job/store/client.hpp"
#include "runtime/job/store/server.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/free_port.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace std::chrono_literals;
using std::chrono::milliseconds;

namespace {

const Secret kSecret("a secret of this test", "the test");

struct Meeting {
  virtual ~Meeting() = default;
  [[nodiscard]] virtual std::shared_ptr<Bootstrap> join(int rank, int world,
                                                        milliseconds timeout) const = 0;
};

// As under ringrun, the launcher, here the test, runs the store.
struct LaunchedMeeting : Meeting {
  [[nodiscard]] std::shared_ptr<Bootstrap> join(int rank, int world,
                                                milliseconds timeout) const override {
    JobPlace place;
    place.kind = BootstrapKind::env;
    place.rank = rank;
    place.world = world;
    place.store = {"127.0.0.1", server.port()};
    place.launcher_holds_store = true;
    return std::make_shared<StoreBootstrap>(place, kSecret, timeout);
  }
  StoreServer server{kSecret, {}};
};

// Rank 0 runs the store on a port agreed in advance, as under srun or by hand.
struct RankZeroMeeting : Meeting {
  [[nodiscard]] std::shared_ptr<Bootstrap> join(int rank, int world,
                                                milliseconds timeout) const override {
    JobPlace place;
    place.kind = BootstrapKind::slurm;
    place.rank = rank;
    place.world = world;
    place.store = {"127.0.0.1", port};
    place.bind = "lo";
    return std::make_shared<StoreBootstrap>(place, kSecret, timeout);
  }
  std::uint16_t port = static_cast<std::uint16_t>(std::stoi(testing::free_port()));
};

struct FolderMeeting : Meeting {
  FolderMeeting() {
    parent = (std::filesystem::temp_directory_path() / "ringsmith-meeting-XXXXXX").string();
    REQUIRE(mkdtemp(parent.data()) != nullptr);
  }
  ~FolderMeeting() override { std::filesystem::remove_all(parent); }
  [[nodiscard]] std::shared_ptr<Bootstrap> join(int rank, int world,
                                                milliseconds timeout) const override {
    return std::make_shared<FileBootstrap>(parent + "/job", rank, world, timeout);
  }
  std::string parent;
};

std::vector<std::unique_ptr<Meeting>> all_meetings() {
  std::vector<std::unique_ptr<Meeting>> out;
  out.push_back(std::make_unique<LaunchedMeeting>());
  out.push_back(std::make_unique<RankZeroMeeting>());
  out.push_back(std::make_unique<FolderMeeting>());
  return out;
}

struct Member {
  int rank = 0, world = 1;
  milliseconds timeout = 20s;
  milliseconds delay = 0ms;  // before it joins
  int exchanges = 1;         // before it leaves
};

// Returns "" if all exchanges succeeded, otherwise the type of the error and its text.
std::string take_part(const Meeting& meeting, const Member& m) {
  try {
    std::this_thread::sleep_for(m.delay);
    const auto bootstrap = meeting.join(m.rank, m.world, m.timeout);
    for (int i = 0; i < m.exchanges; ++i) {
      const auto record = [i](int rank) {
        return "exchange " + std::to_string(i) + ", rank " + std::to_string(rank) +
               std::string(static_cast<std::size_t>(rank % 3) * 1000, 'x');
      };
      const auto all = bootstrap->all_gather(record(m.rank));
      if (static_cast<int>(all.size()) != m.world) return "wrong number of records";
      for (int r = 0; r < m.world; ++r)
        if (all[static_cast<std::size_t>(r)] != record(r)) return "wrong record";
    }
    return "";
  } catch (const TimeoutError& e) {
    return std::string("TimeoutError: ") + e.what();
  } catch (const PeerLost& e) {
    return std::string("PeerLost: ") + e.what();
  } catch (const MismatchError& e) {
    return std::string("MismatchError: ") + e.what();
  } catch (const Error& e) {
    return std::string("Error: ") + e.what();
  }
}

std::vector<std::string> meet(const Meeting& meeting, const std::vector<Member>& members) {
  std::vector<std::future<std::string>> running;
  for (const Member& m : members)
    running.push_back(
        std::async(std::launch::async, [&meeting, m] { return take_part(meeting, m); }));
  std::vector<std::string> out;
  for (auto& r : running) out.push_back(r.get());
  return out;
}

std::vector<Member> world_of(int n, int exchanges = 1) {
  std::vector<Member> out;
  for (int r = 0; r < n; ++r) out.push_back({r, n, 20s, 0ms, exchanges});
  return out;
}

}  // namespace

TEST_CASE("test processes that run at the same time choose different ports", "[job]") {
  (void)testing::free_port();  // forked processes inherit this process's block
  std::set<std::string> chosen;
  std::vector<pid_t> processes;
  for (int process = 0; process < 3; ++process) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    processes.push_back(fork());
    if (processes.back() == 0) {
      for (int i = 0; i < 20; ++i) dprintf(ends[1], "%s ", testing::free_port().c_str());
      close(ends[1]);
      pause();  // keeps its block until it is killed
    }
    close(ends[1]);
    std::string text;
    for (char c = 0; read(ends[0], &c, 1) == 1;) text += c;
    close(ends[0]);
    std::istringstream ports(text);
    for (std::string port; ports >> port;) chosen.insert(port);
  }
  for (const pid_t pid : processes) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  CHECK(chosen.size() == 60);
}

TEST_CASE("ranks exchange records, several times, in every way to meet", "[bootstrap]") {
  // 33 and 65 need more than one block of records.
  for (const int world : {1, 2, 3, 5, 8, 33, 65})
    for (const auto& meeting : all_meetings())
      for (const std::string& error : meet(*meeting, world_of(world, world < 10 ? 4 : 2)))
        CHECK(error == "");
}

TEST_CASE("the collectives run on top of every way to meet", "[bootstrap]") {
  for (const auto& meeting : all_meetings()) {
    std::vector<std::future<float>> sums;
    for (int r = 0; r < 3; ++r)
      sums.push_back(std::async(std::launch::async, [&meeting, r] {
        const auto group = init_process_group(meeting->join(r, 3, 20s));
        std::vector<float> data(1000, static_cast<float>(group->rank() + 1));
        group->all_reduce(std::span(data));
        return data[0] == data[999] ? data[0] : -1.0F;
      }));
    for (auto& sum : sums) CHECK(sum.get() == 6.0F);
  }
}

TEST_CASE("a rank that never comes is named by every other rank", "[bootstrap]") {
  for (const auto& meeting : all_meetings()) {
    auto members = world_of(4);
    members.erase(members.begin() + 2);
    for (Member& m : members) m.timeout = 400ms;
    for (const std::string& error : meet(*meeting, members)) {
      CHECK_THAT(error, ContainsSubstring("TimeoutError"));
      CHECK_THAT(error, ContainsSubstring("rank 2 never arrived"));
      CHECK(error.find("rank 1 never") == std::string::npos);
      CHECK(error.find("rank 3 never") == std::string::npos);
    }
  }
}

TEST_CASE("a missing rank 0 that should hold the store is named", "[bootstrap]") {
  const RankZeroMeeting meeting;
  auto members = world_of(3);
  members.erase(members.begin());
  for (Member& m : members) m.timeout = 200ms;
  for (const std::string& error : meet(meeting, members))
    CHECK_THAT(error,
               ContainsSubstring("TimeoutError") && ContainsSubstring("rank 0, which holds"));
}

TEST_CASE("a rank that came but takes no part is told from one that never came", "[bootstrap]") {
  const LaunchedMeeting meeting;
  const auto idle = meeting.join(1, 3, 20s);
  for (const std::string& error : meet(meeting, {{0, 3, 300ms}}))
    CHECK_THAT(error, ContainsSubstring("rank 1 (pid " + std::to_string(getpid())) &&
                          ContainsSubstring(") arrived, but got no further") &&
                          ContainsSubstring("; rank 2 never arrived"));
}

TEST_CASE("world sizes that disagree end all ranks at once, and both are named", "[bootstrap]") {
  for (const auto& meeting : all_meetings()) {
    const auto began = std::chrono::steady_clock::now();
    for (const std::string& error :
         meet(*meeting, {{0, 3, 20s}, {1, 3, 20s}, {2, 4, 20s, 100ms}})) {
      CHECK_THAT(error, ContainsSubstring("MismatchError") && ContainsSubstring("disagree") &&
                            ContainsSubstring("disagree") && ContainsSubstring("4 for rank 2"));
    }
    CHECK(std::chrono::steady_clock::now() - began < 15s);
  }
}

TEST_CASE("a rank given twice ends all ranks at once, and both processes are named",
          "[bootstrap]") {
  for (const auto& meeting : all_meetings()) {
    const auto began = std::chrono::steady_clock::now();
    for (const std::string& error :
         meet(*meeting, {{0, 3, 20s}, {1, 3, 20s}, {1, 3, 20s, 100ms}})) {
      CHECK_THAT(error, ContainsSubstring("MismatchError"));
      CHECK_THAT(error, ContainsSubstring("rank 1 was given twice: to pid"));
    }
    CHECK(std::chrono::steady_clock::now() - began < 15s);
  }
}

TEST_CASE("a stranger with a taken rank does not disturb a job that has met", "[bootstrap]") {
  for (const auto& meeting : all_meetings()) {
    const auto zero = meeting->join(0, 2, 20s), one = meeting->join(1, 2, 20s);
    auto first = std::async(std::launch::async, [&] { return zero->all_gather("a"); });
    REQUIRE(one->all_gather("b").size() == 2);
    first.get();
    if (dynamic_cast<const LaunchedMeeting*>(meeting.get()) == nullptr) continue;
    CHECK_THAT(meet(*meeting, {{1, 2, 20s}})[0], ContainsSubstring("given twice"));
    first = std::async(std::launch::async, [&] { return zero->all_gather("c"); });
    CHECK(one->all_gather("d").at(0) == "c");
    first.get();
  }
}

TEST_CASE("a rank that leaves before all have met is named at once", "[bootstrap]") {
  const LaunchedMeeting meeting;
  const auto began = std::chrono::steady_clock::now();
  for (const std::string& error : meet(meeting, {{0, 3, 20s}, {1, 3, 20s, 50ms, 0}}))
    if (!error.empty())
      CHECK_THAT(error, ContainsSubstring("PeerLost: rank 1 (pid") &&
                            ContainsSubstring("ended before all ranks had found each other"));
  CHECK(std::chrono::steady_clock::now() - began < 15s);
}

TEST_CASE("who comes after a rank died and rank 0 knew names the dead one, not rank 0",
          "[bootstrap]") {
  // Rank 0 looks for dead ranks ten times a second, so it knows of the death before rank 2 arrives.
  const auto said = meet(RankZeroMeeting(), {{0, 3, 10s}, {1, 3, 10s, 50ms, 0}, {2, 3, 3s, 550ms}});
  for (const std::size_t survivor : {0U, 2U})
    CHECK_THAT(said[survivor], ContainsSubstring("PeerLost: rank 1 (pid"));
}

TEST_CASE("a meeting folder is gone when all have left, and a used one is refused", "[bootstrap]") {
  const FolderMeeting meeting;
  for (const std::string& error : meet(meeting, world_of(3, 2))) CHECK(error == "");
  CHECK_FALSE(std::filesystem::exists(meeting.parent + "/job"));
  const auto crashed = meeting.join(0, 2, 20s);
  CHECK_THAT(meet(meeting, {{0, 2, 20s}})[0],
             ContainsSubstring("given twice") && ContainsSubstring("left behind"));
  const FolderMeeting other;
  std::filesystem::create_directory(other.parent + "/job");
  std::ofstream(other.parent + "/job/thesis.tex") << "precious";
  CHECK_THAT(meet(other, {{0, 1, 20s}})[0], ContainsSubstring("thesis.tex"));
  CHECK(std::filesystem::exists(other.parent + "/job/thesis.tex"));
}

TEST_CASE("a record of forked ranks has less than 4 KiB", "[bootstrap]") {
  const ForkedMeeting meeting(1);
  const auto alone = meeting.join(0, 1s);
  const std::string longest(4095, 'x');
  CHECK(alone->all_gather(longest) == std::vector<std::string>{longest});
  CHECK_THROWS_WITH(alone->all_gather(longest + 'x'),
                    ContainsSubstring("bootstrap record of 4096 bytes: at most 4095 fit"));
}
