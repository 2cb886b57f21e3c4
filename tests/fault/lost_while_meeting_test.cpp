// A rank dies while the ranks connect, after each exchange in turn. Every survivor must name it,
// and not a rank that gave up because of it.
#include <array>
#include <csignal>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <thread>

#include "runtime/base/error.hpp"
#include "runtime/comm/transport/shm/greeting.hpp"
#include "runtime/comm/transport/shm/mesh.hpp"
#include "runtime/job/bootstrap.hpp"
#include "tests/fault/forked_ranks.hpp"
#include "tests/fault/started_by_hand.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/free_port.hpp"
#include "tests/support/transport.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

class DiesAfter : public Bootstrap {
 public:
  DiesAfter(std::shared_ptr<Bootstrap> inner, int exchanges)
      : inner_(std::move(inner)), left_(exchanges) {}
  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override {
    auto records = inner_->all_gather(record);
    if (--left_ == 0) (void)raise(SIGKILL);
    return records;
  }

 private:
  std::shared_ptr<Bootstrap> inner_;
  int left_;
};

constexpr int kWorld = 4;

std::vector<Ending> start(int victim, int exchanges) {
  const std::string port = testing::free_port();
  ForkedRanks ranks(kWorld, [&](std::shared_ptr<Bootstrap> place, ForkedRanks&) {
    look_started_by_hand(place->rank(), kWorld, port);
    GroupOptions options;
    options.transport = test_transport();
    const bool dies = place->rank() == victim;
    place = make_bootstrap(BootstrapKind::env, options.timeout);
    if (dies) place = std::make_shared<DiesAfter>(std::move(place), exchanges);
    const auto group = init_process_group(std::move(place), options);
    if (dies) (void)raise(SIGKILL);
    std::vector<float> values(1000);
    while (true) group->all_reduce(std::span(values));
  });
  return ranks.wait_for_all(std::chrono::seconds(10));
}

}  // namespace

TEST_CASE("a rank killed while the ranks connect is named by every survivor", "[fault][meeting]") {
  for (int exchanges = 1; exchanges <= 4; ++exchanges)
    for (int victim = 0; victim < kWorld; ++victim) {
      const auto endings = start(victim, exchanges);
      for (int r = 0; r < kWorld; ++r) {
        if (r == victim) continue;
        const Ending& ending = endings[static_cast<std::size_t>(r)];
        INFO("rank " << victim << " killed after exchange " << exchanges << ": rank " << r
                     << " says " << ending.errors);
        CHECK(ending.exited);
        CHECK(ending.seconds < 8);  // since the start; no rank waits for the deadline of 30 s
        CHECK_THAT(ending.errors, ContainsSubstring("rank " + std::to_string(victim) + " "));
      }
    }
}

namespace {

struct First : Bootstrap {
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 3; }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override {
    return {record, record, record};
  }
};

Descriptor unix_socket(const std::string& name,
                       int (*bind_or_connect)(int, const sockaddr*, socklen_t)) {
  sockaddr_un address{};
  const socklen_t length = make_address(name, address);
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(bind_or_connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
  return socket;
}

}  // namespace

TEST_CASE("who calls on a rank that gives up hears why, though the culprit has called, too",
          "[fault][meeting]") {
  const std::string name = "ringsmith-meeting-" + std::to_string(getpid());
  const Descriptor listener = unix_socket(name, bind), memory(memfd_create("memory", MFD_CLOEXEC));
  REQUIRE(listen(listener.get(), 3) == 0);
  const std::array<Word, 3> words{random_word(), random_word(), random_word()};
  {
    const Descriptor rank_1 = unix_socket(name, connect);
    REQUIRE(send_greeting(rank_1.get(), words[0], 1, -1));
  }  // the process of rank 1 dies
  std::string error;
  std::thread rank_0([&] {
    First bootstrap;
    std::vector<PeerLink> links(3);
    for (std::size_t r = 0; r < 3; ++r) links[r].word = words[r];
    try {
      meet_on_host(bootstrap, memory, listener, {}, links, Deadline::in(std::chrono::seconds(20)));
    } catch (const PeerLost& lost) {
      error = lost.what();
    }
  });
  const Descriptor rank_2 = unix_socket(name, connect);
  CHECK(send_greeting(rank_2.get(), words[0], 2, -1));
  Greeting said;  // the first greetings may only report which ranks have arrived
  do {
    pollfd entry{rank_2.get(), POLLIN, 0};
    if (poll(&entry, 1, 10'000) != 1) break;
    said = receive_greeting(rank_2.get(), words[2], Take::memory);
  } while (said.kind == Greeting::Kind::stays);
  CHECK(said.kind == Greeting::Kind::leaves);
  CHECK(said.blames == 1);
  rank_0.join();
  CHECK_THAT(error, ContainsSubstring("rank 1 "));
}
