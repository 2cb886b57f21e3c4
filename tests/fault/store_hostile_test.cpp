// Any process can reach the store's port. 1,000 hostile connections must leak no descriptors. Even
// during floods, the server must serve clients with the secret, and other processes must be able
// neither to read nor to change anything.
#include <atomic>
#include <csignal>
#include <filesystem>
#include <random>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "runtime/base/error.hpp"
#include "runtime/job/store/client.hpp"
#include "runtime/job/store/server.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace std::chrono_literals;

namespace {

const Secret kSecret("a secret of this test", "the test");
constexpr const char* kSong = "the canary's song, which no stranger may hear";

std::size_t open_descriptors() {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

Descriptor knock(const tcp::Address& address) {
  std::string why;
  return tcp::connect_to(address, Deadline::in(10s), why);
}

void say(const Descriptor& socket, const std::string& text) {
  send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::string hear(const Descriptor& socket) {
  std::string out(4096, '\0');
  const ssize_t n = recv(socket.get(), out.data(), out.size(), MSG_DONTWAIT);
  out.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return out;
}

void be_hostile(const Descriptor& socket, std::mt19937& random) {
  std::string bytes(300, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  switch (random() % 7) {
    case 0:  // silence
      return;
    case 1:
      return say(socket, "GET / HTTP/1.1\r\nHost: store\r\n\r\n");
    case 2:
      return say(socket, bytes);
    case 3:  // half a proof, then nothing
      return say(socket, bytes.substr(0, store::kProof / 2));
    case 4:  // byte by byte
      for (std::size_t i = 0; i < 10; ++i) say(socket, bytes.substr(i, 1));
      return;
    case 5:  // a wrong proof, and the length of a frame of 4 GiB
      return say(socket, bytes.substr(0, store::kProof) + "\xff\xff\xff\xff");
    default: {  // closes with a reset
      const linger none{1, 0};
      setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
      shutdown(socket.get(), SHUT_RDWR);
    }
  }
}

}  // namespace

TEST_CASE("1,000 hostile connections: the job goes on, strangers hear nothing", "[store]") {
  StoreServerOptions options;
  options.handshake = 200ms;
  StoreServer server(kSecret, options);
  const tcp::Address address{"127.0.0.1", server.port()};
  const auto before = open_descriptors();

  std::atomic<int> wrong{0};
  std::atomic<bool> over{false};
  std::vector<std::thread> honest;
  for (int t = 0; t < 3; ++t)
    honest.emplace_back([&, t] {
      try {
        StoreClient mine(address, kSecret, Deadline::in(60s));
        mine.set("canary " + std::to_string(t), kSong);
        do {
          mine.add("calls", 1);
          StoreClient fresh(address, kSecret, Deadline::in(60s));
          wrong += fresh.get("canary " + std::to_string(t), 60s) != kSong ? 1 : 0;
        } while (!over);
      } catch (const std::exception&) {
        wrong += 1000;
      }
    });

  std::mt19937 random(11);
  std::vector<Descriptor> open;
  std::size_t heard_too_much = 0, unanswered = 0;
  const auto listen_and_leave = [&](std::size_t keep) {
    while (open.size() > keep) {
      const std::size_t i = random() % open.size();
      const std::string heard = hear(open[i]);
      if (heard.size() > store::kHello + store::kVerdict || heard.find(kSong) != std::string::npos)
        ++heard_too_much;
      open[i] = std::move(open.back());
      open.pop_back();
    }
  };
  for (int n = 0; n < 1000; ++n) {
    Descriptor socket = knock(address);
    if (!socket.valid()) {
      ++unanswered;
      continue;
    }
    be_hostile(socket, random);
    open.push_back(std::move(socket));
    listen_and_leave(200);  // most stay until others have connected
  }
  listen_and_leave(0);
  over = true;
  for (std::thread& t : honest) t.join();

  CHECK(heard_too_much == 0);
  CHECK(unanswered == 0);
  CHECK(wrong == 0);
  CHECK(server.drain(0, 10s));
  // On a busy machine the server may not have looked yet at all connections that were closed here.
  const Deadline deadline = Deadline::in(10s);
  while (server.counters().refused < 1000 && !deadline.passed()) std::this_thread::sleep_for(1ms);
  CHECK(server.counters().refused == 1000);
  CHECK(server.counters().accepted == server.counters().joined + 1000);
  CHECK(server.counters().strangers == 0);
  CHECK(open_descriptors() == before);
}

TEST_CASE("a flood of silent connections keeps nobody out who knows the secret", "[store]") {
  StoreServerOptions options;
  options.handshake = 60s;  // so long that no connection is closed
  options.max_pending_strangers = 8;
  StoreServer server(kSecret, options);
  const tcp::Address address{"127.0.0.1", server.port()};
  std::atomic<bool> over{false};
  std::thread flood([&] {
    std::vector<Descriptor> silent(100);
    for (std::size_t n = 0; !over; ++n) silent[n % silent.size()] = knock(address);
  });
  std::string song;
  try {
    for (int i = 0; i < 20; ++i) {
      StoreClient client(address, kSecret, Deadline::in(60s));
      client.set("canary", kSong);
      song = client.get("canary", 0ms);
    }
  } catch (const std::exception& e) {
    song = e.what();
  }
  over = true;
  flood.join();
  CHECK(song == kSong);
  CHECK(server.counters().strangers <= 8);
}

TEST_CASE("a server without descriptors left drops strangers, not the job", "[store]") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit few{open_descriptors() + 20, open_descriptors() + 20};
    setrlimit(RLIMIT_NOFILE, &few);
    StoreServerOptions options;
    options.handshake = 60s;
    options.max_pending_strangers = 1000;
    const StoreServer server(kSecret, options);
    const std::uint16_t port = server.port();
    if (write(ends[1], &port, sizeof port) != sizeof port) _exit(1);
    for (;;) pause();
  }
  std::uint16_t port = 0;
  REQUIRE(read(ends[0], &port, sizeof port) == sizeof port);
  const tcp::Address address{"127.0.0.1", port};
  std::vector<Descriptor> silent;
  for (int n = 0; n < 100; ++n) silent.push_back(knock(address));
  std::string song;
  try {
    StoreClient client(address, kSecret, Deadline::in(60s));
    client.set("canary", kSong);
    song = client.get("canary", 0ms);
  } catch (const std::exception& e) {
    song = e.what();
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
  CHECK(song == kSong);
}

TEST_CASE("a member may write no more than the store holds, and others do not suffer", "[store]") {
  StoreServerOptions options;
  options.table = {.keys = 10, .bytes = 100'000};
  StoreServer server(kSecret, options);
  const tcp::Address address{"127.0.0.1", server.port()};
  StoreClient greedy(address, kSecret, Deadline::in(60s)),
      modest(address, kSecret, Deadline::in(60s));
  modest.set("mine", "kept");
  CHECK_THROWS_WITH(
      [&] {
        for (int i = 0; i < 100; ++i) greedy.set(std::to_string(i), std::string(20'000, 'x'));
      }(),
      ContainsSubstring("the store is full"));
  modest.set("mine", "new");
  CHECK(modest.get("mine", 0ms) == "new");
  CHECK_FALSE(greedy.remove("99"));  // its connection still works
}
