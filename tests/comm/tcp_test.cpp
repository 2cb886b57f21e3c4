#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <netinet/in.h>
#include <new>
#include <numeric>
#include <random>
#include <sstream>
#include <sys/socket.h>
#include <thread>

#include "runtime/base/error.hpp"
#include "runtime/comm/transport/tcp/address.hpp"
#include "runtime/comm/transport/tcp/connect.hpp"
#include "runtime/comm/transport/tcp/stream.hpp"
#include "tests/comm/thread_ranks.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

struct Pair {
  Pair() {
    int ends[2] = {-1, -1};
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    a = Descriptor(ends[0]);
    b = Descriptor(ends[1]);
  }
  Descriptor a, b;
};

std::uint64_t counter_at(const std::vector<std::uint64_t>& mirror, std::size_t word) {
  return mirror[word];
}

// Moves at most n bytes between sockets, as a network may split a stream.
void trickle(int from, int to, std::size_t n) {
  std::vector<std::byte> bytes(n);
  const ssize_t got = recv(from, bytes.data(), n, MSG_DONTWAIT);
  if (got > 0) REQUIRE(send(to, bytes.data(), static_cast<std::size_t>(got), 0) == got);
}

GroupOptions over_tcp(int sockets = 1) {
  GroupOptions options;
  options.transport = Transport::tcp;
  options.sockets = sockets;
  return options;
}

// After each exchange of the bootstrap, connects strangers to every rank's listener.
class WithStrangers : public ThreadBootstrap {
 public:
  using ThreadBootstrap::ThreadBootstrap;
  std::vector<std::string> all_gather(const std::string& record) override {
    auto records = ThreadBootstrap::all_gather(record);
    for (const std::string& r : records) visit(r);
    return records;
  }
  [[nodiscard]] std::size_t visits() const { return strangers_.size(); }

 private:
  void visit(const std::string& record) {
    std::istringstream in(record);
    tcp::Address address;
    std::string rest;
    if (!(in >> address.host >> address.port >> rest)) return;  // not a record of the TCP wires
    for (const std::size_t bytes : {0, 5, 32, 4000}) {
      std::string why;
      Descriptor stranger = tcp::connect_to(address, Deadline::in(std::chrono::seconds(5)), why);
      if (!stranger.valid()) continue;
      const std::string nonsense(bytes, '\x52');
      (void)send(stranger.get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL);
      strangers_.push_back(std::move(stranger));
    }
  }
  std::vector<Descriptor> strangers_;
};

}  // namespace

TEST_CASE("a counter never comes before the bytes that it publishes, however they are cut",
          "[tcp]") {
  constexpr std::size_t kWords = 1 << 14, kCounter = kWords;
  for (const std::uint32_t seed : {1U, 2U, 3U}) {
    std::mt19937 random(seed);
    const Pair near, far;  // sender -> near.a .. near.b -> (trickle) -> far.a .. far.b -> receiver
    std::vector<std::uint64_t> segment(kWords + 1), mirror(kWords + 1);
    tcp::Sender sender;
    tcp::Receiver receiver(reinterpret_cast<std::byte*>(mirror.data()), mirror.size() * 8);
    constexpr std::uint64_t kRounds = 60;
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      const std::size_t size = round % 3 == 0 ? random() % 8 : random() % kWords;
      const std::size_t at = random() % (kWords - size);
      for (std::size_t i = at; i < at + size; ++i) segment[i] = round << 32 | i;
      sender.write(at * 8, reinterpret_cast<const std::byte*>(&segment[at]), size * 8);
      sender.counter(kCounter * 8, round);
      std::size_t turns = 0;
      while (counter_at(mirror, kCounter) != round) {
        REQUIRE(++turns < 1'000'000);
        REQUIRE(sender.flush(near.a.get()).empty());
        trickle(near.b.get(), far.a.get(), 1 + random() % (turns % 2 == 0 ? 7 : 30'000));
        REQUIRE(receiver.take(far.b.get()).empty());
      }
      REQUIRE(std::equal(segment.begin(), segment.end() - 1, mirror.begin()));
    }
    CHECK(sender.empty());
  }
}

TEST_CASE("lent bytes are the owner's again after a flush, sent or not", "[tcp]") {
  constexpr std::size_t kWords = 1 << 16, kCounter = kWords;
  const Pair pair;
  std::vector<std::uint64_t> lent(kWords), segment(kWords + 1), mirror(kWords + 1);
  tcp::Sender sender;
  tcp::Receiver receiver(reinterpret_cast<std::byte*>(mirror.data()), mirror.size() * 8);
  std::uint64_t round = 0;
  const auto send_some = [&](std::size_t words) {
    std::fill(lent.begin(), lent.end(), ++round);
    sender.write(0, reinterpret_cast<const std::byte*>(lent.data()), words * 8,
                 reinterpret_cast<std::byte*>(segment.data()));
    sender.counter(kCounter * 8, round);
    REQUIRE(sender.flush(pair.a.get()).empty());
    sender.give_back();
    std::fill(lent.begin(), lent.end(), ~std::uint64_t{0});
  };
  bool waited = false, did_not_wait = false;
  for (const std::size_t words : {std::size_t{3}, std::size_t{9}, std::size_t{100}, kWords}) {
    send_some(words);
    (sender.empty() ? did_not_wait : waited) = true;
    while (mirror[kCounter] != round) {
      REQUIRE(receiver.take(pair.b.get()).empty());
      REQUIRE(sender.flush(pair.a.get()).empty());
    }
    CHECK(std::count(mirror.begin(), mirror.begin() + static_cast<std::ptrdiff_t>(words), round) ==
          static_cast<std::ptrdiff_t>(words));
  }
  CHECK(waited);  // half a megabyte does not fit into the socket's buffer
  CHECK(did_not_wait);
}

TEST_CASE("what is no frame, or points outside of the mirror, is refused", "[tcp]") {
  std::vector<std::byte> mirror(1024);
  const auto after = [&mirror](tcp::FrameHeader header) {
    header.seal({});
    const Pair pair;
    tcp::Receiver receiver(mirror.data(), mirror.size());
    REQUIRE(send(pair.a.get(), &header, sizeof header, 0) == ssize_t{sizeof header});
    return receiver.take(pair.b.get());
  };
  using tcp::FrameKind;
  CHECK(after({0, 1024, FrameKind::bytes}).empty());
  CHECK(after({1024, 0, FrameKind::bytes}).empty());
  for (const tcp::FrameHeader& bad : {tcp::FrameHeader{1, 1024, FrameKind::bytes},
                                      {1025, 0, FrameKind::bytes},
                                      {~std::uint64_t{0}, 8, FrameKind::bytes},
                                      {0, 4, FrameKind::counter},
                                      {4, 8, FrameKind::counter},
                                      {1024, 8, FrameKind::counter},
                                      {0, 8, FrameKind{7}}})
    CHECK_THAT(after(bad), ContainsSubstring("not a ringsmith message"));
}

TEST_CASE("a closed connection is noticed by both ends, after what had been sent", "[tcp]") {
  std::vector<std::uint64_t> mirror(4);
  Pair pair;
  tcp::Sender sender;
  sender.counter(8, 42);
  REQUIRE(sender.flush(pair.a.get()).empty());
  pair.a = Descriptor();
  tcp::Receiver receiver(reinterpret_cast<std::byte*>(mirror.data()), 32);
  CHECK(receiver.take(pair.b.get()).empty());
  CHECK(counter_at(mirror, 1) == 42);
  CHECK_THAT(receiver.take(pair.b.get()), ContainsSubstring("closed"));
  sender.counter(8, 43);
  CHECK_FALSE(sender.flush(pair.b.get()).empty());
}

TEST_CASE("strangers at the door do not disturb the ranks that meet", "[tcp]") {
  constexpr int kWorld = 3;
  const auto rendezvous = std::make_shared<ThreadRendezvous>(kWorld);
  std::vector<float> sums(kWorld);
  std::vector<std::size_t> visits(kWorld);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorld; ++rank)
    threads.emplace_back([&, rank] {
      const auto bootstrap = std::make_shared<WithStrangers>(rendezvous, rank);
      const auto group = init_process_group(bootstrap, over_tcp());
      float one = 1;
      group->all_reduce(std::span(&one, 1));
      sums[static_cast<std::size_t>(rank)] = one;
      visits[static_cast<std::size_t>(rank)] = bootstrap->visits();
    });
  for (auto& thread : threads) thread.join();
  CHECK(sums == std::vector<float>(kWorld, kWorld));
  CHECK(*std::min_element(visits.begin(), visits.end()) >= 4);  // at least at its own listener
}

TEST_CASE("a rank that does not come to the wires is named", "[tcp]") {
  const auto rendezvous = std::make_shared<ThreadRendezvous>(2);
  std::string said;
  std::thread other([&] {
    ThreadBootstrap bootstrap(rendezvous, 1);
    (void)bootstrap.all_gather("127.0.0.1 9 1 1 1");  // publishes its address, and never connects
  });
  try {
    ThreadBootstrap bootstrap(rendezvous, 0);
    (void)tcp::connect_all(bootstrap, {false, true}, {"", 1, std::chrono::milliseconds(300)}, true);
  } catch (const TimeoutError& e) {
    said = e.what();
  }
  other.join();
  CHECK_THAT(said, ContainsSubstring("rank 1 did not connect to rank 0 at 127.0.0.1:"));
}

TEST_CASE("an interface that is not there, and ranks of two minds, are refused in one line",
          "[tcp]") {
  const auto refusal = [](const std::function<void(GroupOptions&, int)>& adapt) {
    try {
      run_threads<int>(
          2, [](ProcessGroup&) { return 0; }, over_tcp(), adapt);
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK_THAT(refusal([](GroupOptions& o, int) { o.interface = "192.0.2.1"; }),
             ContainsSubstring("cannot listen on 192.0.2.1"));
  CHECK_THAT(refusal([](GroupOptions& o, int rank) {
               if (rank == 1) o.transport = Transport::shm;
             }),
             ContainsSubstring("GroupOptions::transport is tcp on rank 0 and shm on rank 1"));
  CHECK_THAT(refusal([](GroupOptions& o, int rank) { o.sockets = 1 + rank; }),
             ContainsSubstring("GroupOptions::sockets is 1 on rank 0 and 2 on rank 1"));
  CHECK_THAT(refusal([](GroupOptions& o, int rank) { o.checksum = rank == 0; }),
             ContainsSubstring("GroupOptions::checksum is true on rank 0 and false on rank 1"));
}

TEST_CASE("a collective over TCP gives the bits of shared memory", "[tcp]") {
  for (const int world : {2, 3, 4})
    for (const auto algorithm :
         {Algorithm::automatic, Algorithm::ring, Algorithm::plain_ring, Algorithm::tree})
      for (const std::size_t n : {1, 1000, 70'001, 300'007}) {
        const auto body = [&](ProcessGroup& g) {
          g.set_algorithm(algorithm);
          std::mt19937 random(static_cast<std::uint32_t>(g.rank()) + 7);
          std::vector<float> x(n);
          for (float& v : x) v = std::uniform_real_distribution<float>(-1, 1)(random);
          g.all_reduce(std::span(x), ReduceOp::avg);
          return x;
        };
        INFO("world " << world << ' ' << name_of(algorithm) << ' ' << n);
        CHECK(run_threads<std::vector<float>>(world, body, over_tcp(1 + world % 3)) ==
              run_threads<std::vector<float>>(world, body, [] {
                GroupOptions options;
                options.transport = Transport::shm;
                return options;
              }()));
      }
}

TEST_CASE("signals that interrupt a connection in the making do not end it", "[tcp]") {
  // One caller fills the listener's queue. The kernel drops the next caller's packets, so that
  // caller waits for room.
  const Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof place;
  REQUIRE(bind(listener.get(), reinterpret_cast<const sockaddr*>(&place), size) == 0);
  REQUIRE(listen(listener.get(), 0) == 0);
  REQUIRE(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&place), &size) == 0);
  std::string why;
  const tcp::Address address{"127.0.0.1", ntohs(place.sin_port)};
  std::vector<Descriptor> callers;
  while (callers.size() < 8) {
    callers.push_back(tcp::connect_to(address, Deadline::in(std::chrono::milliseconds(200)), why));
    if (!callers.back().valid()) break;
  }
  REQUIRE_FALSE(callers.back().valid());

  struct sigaction before {
  }, tick{};
  tick.sa_handler = [](int) {};
  sigaction(SIGUSR2, &tick, &before);
  std::atomic<bool> over{false};
  const pthread_t me = pthread_self();
  std::thread ticks([&] {
    for (int i = 0; !over.load(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      pthread_kill(me, SIGUSR2);
      if (i == 40) Descriptor(accept(listener.get(), nullptr, nullptr));
    }
  });
  const Descriptor late = tcp::connect_to(address, Deadline::in(std::chrono::seconds(20)), why);
  over = true;
  ticks.join();
  sigaction(SIGUSR2, &before, nullptr);
  INFO(why);
  CHECK(late.valid());
}

// 127.0.0.2 and 127.0.0.1 represent two hosts.
TEST_CASE("a connection stays in this host if both of its ends have one address", "[tcp]") {
  for (const bool bound : {false, true}) {
    const tcp::Listener listener = tcp::listen_on("127.0.0.1", 0);
    const Descriptor caller(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in own{}, other{};
    own.sin_family = other.sin_family = AF_INET;
    own.sin_addr.s_addr = inet_addr("127.0.0.2");
    other.sin_addr.s_addr = inet_addr("127.0.0.1");
    other.sin_port = htons(listener.port);
    if (bound) REQUIRE(bind(caller.get(), reinterpret_cast<sockaddr*>(&own), sizeof own) == 0);
    REQUIRE(connect(caller.get(), reinterpret_cast<sockaddr*>(&other), sizeof other) == 0);
    const Descriptor called(accept(listener.socket.get(), nullptr, nullptr));
    CHECK(tcp::within_host(caller) == !bound);
    CHECK(tcp::within_host(called) == !bound);
  }
}
