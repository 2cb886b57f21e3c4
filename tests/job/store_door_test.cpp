// Tests the store with and without a door, an inherited socket that gives ranks a private way in.
#include <arpa/inet.h>
#include <fcntl.h>
#include <future>
#include <memory>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <thread>

#include "runtime/base/error.hpp"
#include "runtime/job/store/client.hpp"
#include "runtime/job/store/door.hpp"
#include "runtime/job/store/server.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/free_port.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace std::chrono_literals;

namespace {

const Secret kSecret("a secret of this test", "the test");

// No program listens at this address, so a client can reach the store only by the door.
tcp::Address nowhere() {
  return {"127.0.0.1", static_cast<std::uint16_t>(std::stoi(testing::free_port()))};
}

struct Fixture {
  explicit Fixture(store::Door door = store::make_door())
      : outside(std::move(door.outside)),
        server(
            std::make_unique<StoreServer>(kSecret, StoreServerOptions{}, std::move(door.inside))) {}
  [[nodiscard]] std::unique_ptr<StoreClient> client() const {
    return std::make_unique<StoreClient>(nowhere(), kSecret, Deadline::in(10s),
                                         StoreClientOptions{{}, outside.get(), -1});
  }
  Descriptor outside;
  std::unique_ptr<StoreServer> server;
};

NoStore::How silence_of(const tcp::Address& address, std::chrono::milliseconds time) {
  try {
    const StoreClient client(address, kSecret, Deadline::in(time));
  } catch (const NoStore& e) {
    return e.how();
  }
  throw Error("there is a store");
}

Descriptor call_from(const char* address, std::uint16_t port) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in from{}, to{};
  from.sin_family = to.sin_family = AF_INET;
  inet_pton(AF_INET, address, &from.sin_addr);
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  to.sin_port = htons(port);
  REQUIRE(bind(socket.get(), reinterpret_cast<sockaddr*>(&from), sizeof from) == 0);
  REQUIRE(connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  return socket;
}

}  // namespace

TEST_CASE("any number of programs use one door, and each one's end is seen", "[store][door]") {
  const Fixture f;
  const auto waiting = f.client();
  for (const std::string name : {"first", "second"}) {
    auto client = f.client();
    client->leave_will({name}, "gone");
    CHECK(waiting->wait({name}, 0ms).size() == 1);
    client.reset();  // the door is still open
    CHECK(waiting->get(name, 10s) == "gone");
  }
  CHECK(f.server->counters().members == 1);
  CHECK(f.server->counters().strangers == 0);
}

TEST_CASE("the secret is asked for at the door as well", "[store][door]") {
  const Fixture f;
  CHECK_THROWS_WITH(StoreClient(nowhere(), Secret("of some other job", "the test"),
                                Deadline::in(10s), StoreClientOptions{{}, f.outside.get(), -1}),
                    ContainsSubstring("refused this process"));
}

TEST_CASE("a door with nobody behind it: the address is tried", "[store][door]") {
  Fixture dead, other;
  dead.server.reset();
  const tcp::Address address{"127.0.0.1", other.server->port()};
  StoreClient(address, kSecret, Deadline::in(10s), StoreClientOptions{{}, dead.outside.get(), -1})
      .set("k", "v");
  CHECK(other.client()->get("k", 0ms) == "v");
}

TEST_CASE("a door is found by number and socket, and is closed in programs that are started",
          "[store][door]") {
  const store::Door door = store::make_door();
  const std::string text = store::describe_door(door.outside.get());
  fcntl(door.outside.get(), F_SETFD, 0);
  CHECK(store::find_door(text.c_str()) == door.outside.get());
  CHECK((fcntl(door.outside.get(), F_GETFD) & FD_CLOEXEC) != 0);
  // find_door() must refuse the same number with another socket, a file, invalid texts and no text.
  const std::string other = store::describe_door(door.inside.get());
  const std::string number = text.substr(0, text.find(':'));
  CHECK(store::find_door((number + other.substr(other.find(':'))).c_str()) == -1);
  const Descriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  struct stat info {};
  REQUIRE(fstat(null.get(), &info) == 0);
  CHECK(store::find_door(
            (std::to_string(null.get()) + ":" + std::to_string(info.st_ino)).c_str()) == -1);
  for (const char* bad : {"", "7", "7:", ":7", "-1:5", "999999:5", "0:1", "a:b"})
    CHECK(store::find_door(bad) == -1);
  CHECK(store::find_door((text + " ").c_str()) == -1);
  CHECK(store::find_door(nullptr) == -1);
}

TEST_CASE("no store: nobody listens, or somebody does and is silent", "[store][door]") {
  CHECK(silence_of(nowhere(), 50ms) == NoStore::How::refused);
  const tcp::Listener mute = tcp::listen_on("127.0.0.1", 0);
  CHECK(silence_of({"127.0.0.1", mute.port}, 50ms) == NoStore::How::silent);
}

TEST_CASE("a wait for the store can be cancelled", "[store][door]") {
  const Fixture f;
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const Descriptor read(ends[0]);
  Descriptor write(ends[1]);
  auto value = std::async(std::launch::async, [&] {
    StoreClient client(nowhere(), kSecret, Deadline::in(60s),
                       StoreClientOptions{{}, f.outside.get(), read.get()});
    return client.get("never", 60s);
  });
  auto connecting = std::async(std::launch::async, [&] {
    const StoreClient client(nowhere(), kSecret, Deadline::in(60s),
                             StoreClientOptions{{}, -1, read.get()});
  });
  const auto began = std::chrono::steady_clock::now();
  write = Descriptor();
  CHECK_THROWS_WITH(value.get(), ContainsSubstring("was cancelled"));
  CHECK_THROWS_WITH(connecting.get(), ContainsSubstring("was cancelled"));
  CHECK(std::chrono::steady_clock::now() - began < 10s);
}

TEST_CASE("a flood from one address sends nobody away who calls from another", "[store]") {
  StoreServerOptions options;
  options.handshake = 60s;  // so long that no connection is closed
  options.max_pending_strangers = 8;
  const StoreServer server(kSecret, options);
  const Descriptor early = call_from("127.0.0.2", server.port());
  std::vector<Descriptor> silent;
  for (int n = 0; n < 100; ++n) silent.push_back(call_from("127.0.0.1", server.port()));
  const Deadline deadline = Deadline::in(10s);
  while (server.counters().accepted < 101 && !deadline.passed()) std::this_thread::sleep_for(1ms);
  CHECK(server.counters().refused == 93);
  std::string hello(store::kHello + 1, '\0');
  pollfd readable{early.get(), POLLIN, 0};  // the server may have just accepted the connection
  REQUIRE(poll(&readable, 1, 10'000) == 1);
  CHECK(recv(early.get(), hello.data(), hello.size(), MSG_DONTWAIT) == ssize_t{store::kHello});
  CHECK((recv(early.get(), hello.data(), hello.size(), MSG_DONTWAIT) == -1 && errno == EAGAIN));
}
