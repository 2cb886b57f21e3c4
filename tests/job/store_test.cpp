#include "runtime/job/store/store.hpp"

#include <future>
#include <memory>
#include <poll.h>
#include <sys/socket.h>
#include <thread>

#include "runtime/base/error.hpp"
#include "runtime/job/store/client.hpp"
#include "runtime/job/store/server.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/free_port.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace std::chrono_literals;

namespace {

const Secret kSecret("a secret of this test", "the test");

struct Fixture {
  explicit Fixture(StoreServerOptions options = {}) : server(kSecret, std::move(options)) {}
  [[nodiscard]] tcp::Address address() const { return {"127.0.0.1", server.port()}; }
  [[nodiscard]] std::unique_ptr<StoreClient> client() const {
    return std::make_unique<StoreClient>(address(), kSecret, Deadline::in(10s));
  }
  StoreServer server;
};

}  // namespace

TEST_CASE("compare_and_swap: who finds what he expects writes; a missing key holds nothing",
          "[store]") {
  const Fixture f;
  const auto c = f.client();
  CHECK(c->compare_and_swap("k", "old", "new") == "");  // missing, so it is not "old"
  CHECK(c->compare_and_swap("k", "", "first") == "first");
  CHECK(c->compare_and_swap("k", "", "second") == "first");
  CHECK(c->compare_and_swap("k", "first", "third") == "third");
  CHECK(c->get("k", 0ms) == "third");
}

TEST_CASE("what one client writes the others read, in any bytes", "[store]") {
  const Fixture f;
  const auto a = f.client(), b = f.client();
  std::string every;
  for (int i = 0; i < 256; ++i) every += static_cast<char>(i);
  for (const std::string& value : {std::string(), every, std::string(kMostValue, 'x')}) {
    a->set("key", value);
    CHECK(b->get("key", 0ms) == value);
  }
  CHECK(b->remove("key"));
  CHECK_FALSE(a->remove("key"));
  CHECK_THROWS_WITH(a->get("key", 1ms), ContainsSubstring("'key'"));
  CHECK_THROWS_AS(a->get("key", 0ms), TimeoutError);
  // A refused call leaves the connection usable.
  CHECK_THROWS_WITH(a->set("key", std::string(kMostValue + 1, 'x')), ContainsSubstring("at most"));
  CHECK_THROWS_AS(a->set("", "x"), UsageError);
  a->set("text", "no number");
  CHECK_THROWS_WITH(a->add("text", 1), ContainsSubstring("not hold a number"));
  CHECK(a->add("n", 41) == 41);
  CHECK(b->add("n", 1) == 42);
}

TEST_CASE("get and wait sleep until the keys are there, or say which are not", "[store]") {
  const Fixture f;
  const auto a = f.client(), b = f.client();
  auto value = std::async(std::launch::async, [&] { return b->get("later", 10s); });
  a->set("other", "");
  a->set("later", "now");
  CHECK(value.get() == "now");
  auto missing = std::async(std::launch::async, [&] { return b->wait({"x", "later", "y"}, 10s); });
  a->add("x", 1);
  a->compare_and_swap("y", "", "1");
  CHECK(missing.get().empty());
  CHECK(a->wait({"x", "p", "y", "q"}, 5ms) == std::vector<std::string>{"p", "q"});
  CHECK(a->wait({}, 0ms).empty());
  // A waiting client must see a key that exists for only a moment. On a busy machine the client
  // starts waiting later, so the pause grows.
  std::string seen;
  for (auto pause = 20ms; seen.empty() && pause < 10s; pause *= 4) {
    value = std::async(std::launch::async, [&, pause] {
      try {
        return b->get("moment", 2 * pause);
      } catch (const TimeoutError&) {
        return std::string();
      }
    });
    std::this_thread::sleep_for(pause);
    a->set("moment", "seen");
    a->remove("moment");
    seen = value.get();
  }
  CHECK(seen == "seen");
}

TEST_CASE("many clients count together without losing one", "[store]") {
  const Fixture f;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&f] {
      const auto c = f.client();
      for (int i = 0; i < 50; ++i) c->add("n", 1);
    });
  for (std::thread& t : threads) t.join();
  CHECK(f.client()->add("n", 0) == 400);
}

TEST_CASE("a will is done when its client goes, unless its keys are taken", "[store]") {
  const Fixture f;
  const auto reader = f.client();
  {
    const auto a = f.client();
    a->leave_will({"wrong"}, "replaced");
    a->leave_will({"end of a"}, "a has gone");
    CHECK(reader->wait({"end of a"}, 0ms).size() == 1);
  }
  CHECK(reader->get("end of a", 10s) == "a has gone");
  {
    const auto b = f.client();
    b->leave_will({"end of a"}, "too late");
    const auto c = f.client();
    c->leave_will({"end of a", "end of c"}, "c has gone");
  }
  CHECK(f.server.drain(1, 10s));
  CHECK(reader->get("end of a", 0ms) == "a has gone");
  CHECK(reader->get("end of c", 0ms) == "c has gone");
  CHECK(reader->wait({"wrong"}, 0ms).size() == 1);
}

TEST_CASE("without the secret nobody gets in, and the refusal says why", "[store]") {
  const Fixture f;
  f.client()->set("canary", "alive");
  const Secret wrong("another secret, as long", "the test");
  CHECK_THROWS_WITH(StoreClient(f.address(), wrong, Deadline::in(10s)),
                    ContainsSubstring("refused this process") &&
                        ContainsSubstring("RINGSMITH_SECRET") && ContainsSubstring("another job"));
  const Deadline deadline = Deadline::in(10s);
  while (f.server.counters().refused == 0 && !deadline.passed()) std::this_thread::sleep_for(1ms);
  CHECK(f.server.counters().refused == 1);
  CHECK(f.client()->get("canary", 0ms) == "alive");
}

TEST_CASE("a server that does not know the secret, or is none at all, is not believed", "[store]") {
  const auto impostor = [](const std::string& says) {
    tcp::Listener listener = tcp::listen_on("127.0.0.1", 0);
    const std::uint16_t port = listener.port;
    std::thread([says, l = std::move(listener)] {
      pollfd entry{l.socket.get(), POLLIN, 0};
      poll(&entry, 1, 10'000);
      const Descriptor c(accept4(l.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!c.valid()) return;
      send(c.get(), says.data(), says.size(), MSG_NOSIGNAL);
      char block[256];
      while (recv(c.get(), block, sizeof block, 0) > 0) {
      }
    }).detach();
    return tcp::Address{"127.0.0.1", port};
  };
  const std::string hello = std::string(store::kMagic) + std::string(store::kNonce, 'n');
  CHECK_THROWS_WITH(StoreClient(impostor(hello + '\1' + std::string(store::kTag, 't')), kSecret,
                                Deadline::in(10s)),
                    ContainsSubstring("does not know the job's secret"));
  CHECK_THROWS_WITH(StoreClient(impostor("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3 and more\r\n"),
                                kSecret, Deadline::in(10s)),
                    ContainsSubstring("is not a store"));
  const auto began = std::chrono::steady_clock::now();
  CHECK_THROWS_AS(StoreClient(impostor(""), kSecret, Deadline::in(300ms)), TimeoutError);
  CHECK(std::chrono::steady_clock::now() - began < 5s);
}

TEST_CASE("nobody there: a deadline, with the address and the reason", "[store]") {
  const auto port = static_cast<std::uint16_t>(std::stoi(testing::free_port()));
  CHECK_THROWS_WITH(StoreClient({"127.0.0.1", port}, kSecret, Deadline::in(50ms)),
                    ContainsSubstring("127.0.0.1:" + std::to_string(port)) &&
                        ContainsSubstring("within 0.05 s") &&
                        ContainsSubstring("Connection refused"));
  CHECK_THROWS_WITH(StoreClient({"no such host.invalid", 1}, kSecret, Deadline::in(1s)),
                    ContainsSubstring("'no such host.invalid'"));
}

TEST_CASE("a client may start before its server", "[store]") {
  const auto port = static_cast<std::uint16_t>(std::stoi(testing::free_port()));
  auto value = std::async(std::launch::async, [port] {
    return StoreClient({"127.0.0.1", port}, kSecret, Deadline::in(10s)).get("k", 10s);
  });
  std::this_thread::sleep_for(50ms);
  const Fixture f({.bind = "lo", .port = port});
  f.client()->set("k", "v");
  CHECK(value.get() == "v");
}

TEST_CASE("a client whose server ends is told so, and told again", "[store]") {
  auto f = std::make_unique<Fixture>();
  const auto c = f->client();
  auto value = std::async(std::launch::async, [&c] { return c->get("never", 60s); });
  std::this_thread::sleep_for(20ms);
  f.reset();
  CHECK_THROWS_WITH(value.get(), ContainsSubstring("is gone"));
  CHECK_THROWS_WITH(c->set("k", "v"), ContainsSubstring("is gone"));
}

TEST_CASE("listening: port 0 is free, a taken port and a foreign address say what to do",
          "[store]") {
  const Fixture a, b;
  CHECK(a.server.port() != b.server.port());
  CHECK_THROWS_WITH(StoreServer(kSecret, {.bind = "127.0.0.1", .port = a.server.port()}),
                    ContainsSubstring("another program listens there") &&
                        ContainsSubstring(std::to_string(a.server.port())));
  CHECK_THROWS_WITH(StoreServer(kSecret, {.bind = "192.0.2.1"}),
                    ContainsSubstring("not an address of this host"));
  CHECK_THROWS_WITH(StoreServer(kSecret, {.bind = "nowhere.invalid"}),
                    ContainsSubstring("'nowhere.invalid'"));
  for (const char* bad : {"", "0", "-1", "65536", "29500x", "x"})
    CHECK_THROWS_WITH(tcp::parse_port("MASTER_PORT", bad), ContainsSubstring("MASTER_PORT"));
  CHECK(tcp::parse_port("MASTER_PORT", "65535") == 65535);
  CHECK(tcp::parse_port("--master-port", "0", true) == 0);
}
