// Processes of another user, and foreign processes of the same user, attack a job's sockets while
// its ranks meet and compute. The job must have the same bits as without attacks, and no attacker
// may receive a descriptor. `make test-all` runs each attack once, `make test-neighbours` runs it
// RINGSMITH_TEST_NEIGHBOURS times.
#include "tests/support/neighbours.hpp"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>

#include "runtime/base/error.hpp"
#include "runtime/comm/transport/shm/greeting.hpp"
#include "runtime/comm/transport/shm/mesh.hpp"
#include "tests/fault/attackers.hpp"
#include "tests/fault/forked_ranks.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/device_bytes.hpp"
#include "tests/support/run_program.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

// Blocks its rank, once its sockets exist, until all attackers have attacked them.
class Besieged : public Bootstrap {
 public:
  Besieged(std::shared_ptr<Bootstrap> inner, Scene& scene, int attackers)
      : inner_(std::move(inner)), scene_(scene), attackers_(attackers) {}
  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override {
    const std::string mine = "ringsmith-" + std::to_string(getpid()) + "-";
    if (!attacked_ && attackers_ > 0 && !testing::sockets_named(mine).empty()) {
      attacked_ = true;
      scene_.pids[rank()] = getpid();
      ++scene_.present;
      require(Scene::wait_for(scene_.attacked_meeting, attackers_), "nobody attacked the meeting");
    }
    return inner_->all_gather(record);
  }

 private:
  std::shared_ptr<Bootstrap> inner_;
  Scene& scene_;
  int attackers_;
  bool attacked_ = false;
};

std::uint64_t hash(const std::vector<float>& values) {
  std::uint64_t sum = 0xcbf29ce484222325U;
  const auto* const bytes = reinterpret_cast<const unsigned char*>(values.data());
  for (std::size_t i = 0; i < values.size() * sizeof(float); ++i)
    sum = (sum ^ bytes[i]) * 0x100000001b3U;
  return sum;
}

// Returns a hash of sums whose bits depend on the order of additions.
std::uint64_t compute(ProcessGroup& g) {
  constexpr std::size_t kCount = 50'000;
  std::vector<float> values(kCount);
  const auto memory = g.allocate_on(g.device(), Bytes(kCount * sizeof(float)));
  const Buffer buffer(memory->data(), Elements(kCount), DType::f32);
  for (std::size_t i = 0; i < kCount; ++i)
    values[i] = 1.0F / static_cast<float>(i + 7 * static_cast<std::size_t>(g.rank()) + 1);
  copy_on_device(memory->data(), values.data(), kCount * sizeof(float), g.device());
  for (int round = 0; round < 3; ++round) g.all_reduce(buffer);
  copy_on_device(values.data(), memory->data(), kCount * sizeof(float), g.device());
  return hash(values);
}

struct Job {
  int world;
  Device device;
};
const Job kOnHost{3, Device::cpu()}, kOnDevices{2, Device::cuda(0)};

// Runs the job, attacked or not, and checks everything. Returns each rank's result.
std::vector<std::uint64_t> run(const Job& job, std::optional<Attack> attack, bool as_nobody) {
  Scene& scene = *Scene::make();
  scene.world = job.world;
  const int attackers = attack ? 1 : 0;
  std::vector<std::uint64_t> sums;
  {
    ForkedRanks ranks(job.world, [&](std::shared_ptr<Bootstrap> place, ForkedRanks&) {
      GroupOptions options;
      options.transport = Transport::shm;
      options.device = job.device;
      if (job.device.is_cuda()) options.device.index = place->rank();
      const DeviceGuard guard(options.device);
      const int rank = place->rank();
      const auto group = init_process_group(
          std::make_shared<Besieged>(std::move(place), scene, attackers), options);
      std::uint64_t sum = compute(*group);
      if (job.device.is_cuda() && attackers > 0) {
        require(Scene::wait_for(scene.attacked_memory, attackers), "nobody attacked the memory");
        sum = compute(*group);
      }
      scene.sums[rank] = sum;
    });
    std::optional<Attacker> attacker;
    if (attack) attacker.emplace(scene, *attack, as_nobody);
    for (const Ending& ending : ranks.wait_for_all(std::chrono::seconds(40))) {
      INFO(ending.errors);
      CHECK(ending.exited);
      CHECK(ending.code == 0);
    }
    scene.over = true;
    if (attacker) {
      CHECK(attacker->ended_well());
      CHECK(scene.connections > 0);
    }
    CHECK(scene.loot == 0);
    for (int r = 0; r < job.world; ++r) sums.push_back(scene.sums[r]);
  }
  munmap(&scene, sizeof scene);
  return sums;
}

long times() {
  const char* const text = std::getenv("RINGSMITH_TEST_NEIGHBOURS");
  return text != nullptr ? std::atol(text) : 1;
}

void attack(const Job& job, bool as_nobody) {
  const auto in_peace = run(job, {}, false);
  int made = 0;
  for (const Attack kind : kAttacks)
    for (long n = 0; n < times(); ++n) {
      INFO(name_of(kind) << ", attempt " << n);
      CHECK(run(job, kind, as_nobody) == in_peace);
      ++made;
    }
  if (times() == 1) return;
  std::printf("%d attacks %s on %d ranks %s\n", made, as_nobody ? "by another user" : "by our user",
              job.world, job.device.is_cuda() ? "with emulated devices" : "that share memory");
  std::fflush(stdout);  // otherwise the children print it again
}

bool can_be_nobody(const char* test) {
  if (geteuid() == 0) return true;
  WARN("NOT RUN: '" << test << "' needs root, to become another user");
  return false;
}

}  // namespace

TEST_CASE("another user attacks a job on shared memory", "[neighbours]") {
  if (can_be_nobody("another user attacks a job on shared memory")) attack(kOnHost, true);
}
TEST_CASE("our user without the word attacks a job on shared memory", "[neighbours]") {
  attack(kOnHost, false);
}
TEST_CASE("another user attacks a job on emulated devices", "[neighbours]") {
  if (can_be_nobody("another user attacks a job on emulated devices")) attack(kOnDevices, true);
}
TEST_CASE("our user without the word attacks a job on emulated devices", "[neighbours]") {
  attack(kOnDevices, false);
}

namespace {

struct One : Bootstrap {
  explicit One(int which) : rank_(which) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return 2; }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override {
    return {record, record};
  }
  int rank_;
};

struct Two {
  std::string name = "ringsmith-neighbours-" + std::to_string(getpid());
  std::vector<Word> words{random_word(), random_word()};
  Descriptor memory{memfd_create("memory", MFD_CLOEXEC)};

  [[nodiscard]] std::string meet(int rank, const Descriptor& listener) const {
    One bootstrap(rank);
    std::vector<PeerLink> links(2);
    for (std::size_t r = 0; r < 2; ++r) links[r].word = words[r];
    try {
      meet_on_host(bootstrap, memory, listener, {name, ""}, links,
                   Deadline::in(std::chrono::seconds(20)));
      return {};
    } catch (const PeerLost& lost) {
      return lost.what();
    }
  }
};

// A child process that runs `body` as user nobody, and exits with 0 if `body` returns true. The
// constructor waits until the body has written a byte to `ready`.
class Nobody {
 public:
  explicit Nobody(const std::function<bool(int ready)>& body) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_ = fork();
    if (pid_ == 0) _exit(testing::become_nobody() && body(ends[1]) ? 0 : 1);
    close(ends[1]);
    char byte = 0;
    CHECK(read(ends[0], &byte, 1) == 1);
    close(ends[0]);
  }
  bool was_right() {
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  pid_t pid_;
};

bool readable(int socket) {
  pollfd entry{socket, POLLIN, 0};
  return poll(&entry, 1, 20'000) == 1;
}

}  // namespace

TEST_CASE("another user who has learnt the word is still refused by a listener", "[neighbours]") {
  if (!can_be_nobody("another user who has learnt the word")) return;
  const Two ranks;
  const Descriptor listener(testing::abstract_socket(ranks.name, bind));
  REQUIRE(listen(listener.get(), 3) == 0);
  Nobody stranger([&](int ready) {
    const int socket = testing::abstract_socket(ranks.name, connect);
    if (!send_greeting(socket, ranks.words[0], 1, -1) || write(ready, "!", 1) != 1) return false;
    return readable(socket) &&
           receive_greeting(socket, ranks.words[1], Take::memory).kind == Greeting::Kind::gone;
  });
  std::string first;
  std::thread rank_0([&] { first = ranks.meet(0, listener); });
  CHECK(ranks.meet(1, Descriptor(socket(AF_UNIX, SOCK_STREAM, 0))).empty());
  rank_0.join();
  CHECK(first.empty());
  CHECK(stranger.was_right());
}

TEST_CASE("another user who has taken a dead rank's name gets nothing", "[neighbours]") {
  if (!can_be_nobody("another user who has taken a dead rank's name")) return;
  const Two ranks;
  Nobody stranger([&](int ready) {
    const int listener = testing::abstract_socket(ranks.name, bind);
    if (listen(listener, 3) != 0 || write(ready, "!", 1) != 1 || !readable(listener)) return false;
    const int caller = accept(listener, nullptr, nullptr);
    (void)send_greeting(caller, ranks.words[1], 0, ranks.memory.get());
    char byte = 0;
    // The caller sends nothing, not even the word.
    return readable(caller) && recv(caller, &byte, 1, MSG_DONTWAIT) <= 0;
  });
  CHECK_THAT(ranks.meet(1, Descriptor(socket(AF_UNIX, SOCK_STREAM, 0))),
             ContainsSubstring("rank 0 "));
  CHECK(stranger.was_right());
}

TEST_CASE("a cluster of namespaces runs nothing from another user's folder", "[neighbours]") {
  std::string folder = "/tmp/ringsmith-cluster-XXXXXX";
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  const auto up = [&] {
    return testing::run_program({"env", "NETNS_CLUSTER_DIR=" + folder,
                                 RINGSMITH_SOURCE_DIR "/tests/nodes/netns-cluster.sh", "up", "1"});
  };
  REQUIRE(chmod(folder.c_str(), 0777) == 0);
  CHECK_THAT(up().err, ContainsSubstring("or is open, to another user"));
  if (can_be_nobody("a cluster of namespaces in another user's folder")) {
    REQUIRE((chmod(folder.c_str(), 0700) == 0 && chown(folder.c_str(), 65534, 65534) == 0));
    CHECK_THAT(up().err, ContainsSubstring("or is open, to another user"));
  }
  CHECK(rmdir(folder.c_str()) == 0);
}
