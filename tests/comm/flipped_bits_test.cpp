// Flips bits between two ranks, as a faulty adapter might, where no checksum of TCP protects them.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <poll.h>
#include <random>
#include <span>
#include <sstream>
#include <sys/socket.h>
#include <thread>

#include "runtime/base/error.hpp"
#include "runtime/comm/transport/tcp/address.hpp"
#include "runtime/comm/transport/tcp/stream.hpp"
#include "tests/comm/thread_ranks.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;

namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr std::size_t kHeader = sizeof(tcp::FrameHeader);
constexpr std::size_t kCounterFrame = kHeader + 8;
constexpr std::size_t kGreeting = 40;  // bytes, sent by the connecting rank
constexpr const char* kReason = "do not match their checksum (CRC32C 0x";

using Traffic = std::vector<std::byte>;

void flip(Traffic& stream, std::size_t bit) {
  stream[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
}

// ---- one Sender and one Receiver, without ranks ----

// Returns the bytes that send `data` to `offset`, and the value 7 to the counter at 0.
Traffic frames_of(std::span<const std::byte> data, std::size_t offset, bool checksum) {
  tcp::Sender sender(checksum);
  sender.write(offset, data.data(), data.size());
  sender.counter(0, 7);
  int ends[2] = {-1, -1};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  const Descriptor in(ends[0]), out(ends[1]);
  Traffic stream;
  std::array<std::byte, 4096> piece;
  for (ssize_t got = 0; got > 0 || !sender.empty();) {
    REQUIRE(sender.flush(in.get()).empty());
    got = recv(out.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (got > 0) stream.insert(stream.end(), piece.begin(), piece.begin() + got);
  }
  return stream;
}

struct Received {
  std::string trouble;
  bool damaged = false;
  std::vector<std::uint64_t> mirror;
  [[nodiscard]] std::uint64_t counter() const { return mirror[0]; }
  [[nodiscard]] bool untouched() const {
    return std::ranges::all_of(mirror, [](std::uint64_t word) { return word == 0; });
  }
};

Received receive(const Traffic& stream, std::size_t words, bool checksum, std::uint32_t seed) {
  std::mt19937 random(seed);
  int ends[2] = {-1, -1};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  const Descriptor in(ends[0]), out(ends[1]);
  Received r{{}, false, std::vector<std::uint64_t>(words)};
  tcp::Receiver receiver(reinterpret_cast<std::byte*>(r.mirror.data()), words * 8, checksum);
  for (std::size_t at = 0; at < stream.size() && r.trouble.empty();) {
    const std::size_t size = std::min<std::size_t>(1 + random() % 40'000, stream.size() - at);
    REQUIRE(send(in.get(), &stream[at], size, 0) == static_cast<ssize_t>(size));
    r.trouble = receiver.take(out.get());
    at += size;
  }
  // After an error, every call of take() must return that error.
  if (!r.trouble.empty()) CHECK(receiver.take(out.get()) == r.trouble);
  r.damaged = receiver.damaged();
  return r;
}

// ---- ranks ----

// A proxy between the last rank, which connects, and rank 0, which listens. It flips one bit.
class Meddler {
 public:
  // Flips the lowest bit of byte `byte` in one direction.
  Meddler(bool to_listener, std::uint64_t byte) : to_listener_(to_listener), byte_(byte) {}
  ~Meddler() { stop(); }
  Meddler(const Meddler&) = delete;
  Meddler& operator=(const Meddler&) = delete;

  std::string through(const std::string& record) {
    std::istringstream in(record);
    std::string words, more;
    if (!(in >> target_.host >> target_.port) || !(in >> more >> words) || in >> more)
      return record;  // the record of a rank that does not listen
    listener_ = tcp::listen_on(target_.host, 0);
    thread_ = std::thread([this] { carry(); });
    return target_.host + ' ' + std::to_string(listener_.port) +
           record.substr(record.find(' ', record.find(' ') + 1));
  }
  // Number of bytes forwarded. Call it when the ranks have ended.
  [[nodiscard]] std::uint64_t carried(bool to_listener) {
    stop();
    return ways_[to_listener ? 0 : 1].carried;
  }

 private:
  struct Way {
    int from = -1, to = -1;
    bool open = true;
    std::uint64_t carried = 0;
    std::vector<std::byte> pending = {};
  };

  void stop() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
  }

  void carry() {
    Descriptor caller;
    while (!over_ && !caller.valid()) {
      pollfd entry{listener_.socket.get(), POLLIN, 0};
      if (poll(&entry, 1, 5) > 0)
        caller = Descriptor(accept4(listener_.socket.get(), nullptr, nullptr, SOCK_NONBLOCK));
    }
    std::string why;
    const Descriptor listener =
        tcp::connect_to(target_, Deadline::in(std::chrono::seconds(5)), why);
    if (!caller.valid() || !listener.valid()) return;
    ways_[0].from = ways_[1].to = caller.get();
    ways_[0].to = ways_[1].from = listener.get();
    while (!over_ && (ways_[0].open || ways_[1].open)) {
      const bool one = step(ways_[0], to_listener_), other = step(ways_[1], !to_listener_);
      if (one || other) continue;
      std::array<pollfd, 2> entries;
      for (std::size_t i = 0; i < 2; ++i)
        entries[i] = {ways_[i].open ? ways_[i].from : -1, POLLIN, 0};
      poll(entries.data(), entries.size(), 1);
    }
  }

  bool step(Way& way, bool meddles) {
    if (!way.open) return false;
    if (way.pending.empty()) {
      way.pending.resize(1 << 16);
      const ssize_t got = recv(way.from, way.pending.data(), way.pending.size(), MSG_DONTWAIT);
      way.pending.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
      if (got == 0 || (got < 0 && errno != EAGAIN)) {
        shutdown(way.to, SHUT_WR);
        way.open = false;
      }
      if (meddles && byte_ >= way.carried && byte_ - way.carried < way.pending.size())
        way.pending[byte_ - way.carried] ^= std::byte{1};
      way.carried += way.pending.size();
    }
    if (way.pending.empty()) return false;
    const ssize_t sent =
        send(way.to, way.pending.data(), way.pending.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) way.open = false;
    if (sent > 0) way.pending.erase(way.pending.begin(), way.pending.begin() + sent);
    return sent > 0;
  }

  bool to_listener_;
  std::uint64_t byte_;
  tcp::Address target_;
  tcp::Listener listener_;
  std::array<Way, 2> ways_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

class MeddledBootstrap : public ThreadBootstrap {
 public:
  MeddledBootstrap(std::shared_ptr<ThreadRendezvous> rendezvous, int rank, Meddler& meddler)
      : ThreadBootstrap(std::move(rendezvous), rank), meddler_(meddler) {}
  std::vector<std::string> all_gather(const std::string& record) override {
    auto records = ThreadBootstrap::all_gather(record);
    if (rank() == size() - 1) records[0] = meddler_.through(records[0]);
    return records;
  }

 private:
  Meddler& meddler_;
};

struct NamedCall {
  std::string name;
  Algorithm algorithm = Algorithm::automatic;
  // n: elements for or from each rank. in and out hold n elements per rank.
  std::function<void(ProcessGroup&, std::span<float> in, std::span<float> out, std::size_t n)> call;
};

std::vector<NamedCall> all_calls() {
  using Floats = std::span<float>;
  std::vector<NamedCall> calls;
  for (const auto algorithm :
       {Algorithm::automatic, Algorithm::ring, Algorithm::plain_ring, Algorithm::tree})
    calls.push_back({"all_reduce, " + std::string(name_of(algorithm)), algorithm,
                     [](ProcessGroup& g, Floats in, Floats out, std::size_t n) {
                       g.all_reduce(in.first(n), out.first(n), ReduceOp::sum);
                     }});
  const auto add = [&](const char* name, const auto& call) {
    calls.push_back({name, Algorithm::automatic, call});
  };
  add("reduce_scatter", [](ProcessGroup& g, Floats in, Floats out, std::size_t n) {
    g.reduce_scatter(in, out.first(n), ReduceOp::sum);
  });
  add("all_gather", [](ProcessGroup& g, Floats in, Floats out, std::size_t n) {
    g.all_gather(in.first(n), out);
  });
  add("broadcast", [](ProcessGroup& g, Floats in, Floats out, std::size_t n) {
    if (g.rank() == 0) std::ranges::copy(in.first(n), out.begin());
    g.broadcast(out.first(n), 0);
  });
  add("reduce", [](ProcessGroup& g, Floats in, Floats out, std::size_t n) {
    g.reduce(in.first(n), out.first(n), ReduceOp::sum, 0);
  });
  add("gather",
      [](ProcessGroup& g, Floats in, Floats out, std::size_t n) { g.gather(in.first(n), out, 0); });
  add("scatter", [](ProcessGroup& g, Floats in, Floats out, std::size_t n) {
    g.scatter(in, out.first(n), 0);
  });
  add("all_to_all",
      [](ProcessGroup& g, Floats in, Floats out, std::size_t) { g.all_to_all(in, out); });
  add("send and recv", [](ProcessGroup& g, Floats in, Floats out, std::size_t n) {
    const int last = g.size() - 1;
    if (g.rank() == 0) {
      g.send(in.first(n), last);
      g.recv(out.first(n), last);
    } else if (g.rank() == last) {
      g.recv(out.first(n), 0);
      g.send(in.first(n), 0);
    }
  });
  return calls;
}

constexpr int kRounds = 4;

struct Outcome {
  std::vector<float> out;
  std::string error;
};

std::vector<Outcome> run_meddled(int world, const NamedCall& named, std::size_t n, Meddler& meddler,
                                 bool checksum) {
  const auto rendezvous = std::make_shared<ThreadRendezvous>(world);
  std::vector<Outcome> outcomes(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      Outcome& mine = outcomes[static_cast<std::size_t>(rank)];
      mine.out.resize(n * static_cast<std::size_t>(world));
      std::vector<float> in(mine.out.size());
      for (std::size_t i = 0; i < in.size(); ++i)
        in[i] = static_cast<float>(i % 977 + 1) + 1000 * static_cast<float>(rank);
      try {
        GroupOptions options;
        options.transport = Transport::tcp;
        options.algorithm = named.algorithm;
        options.checksum = checksum;
        const auto group = init_process_group(
            std::make_shared<MeddledBootstrap>(rendezvous, rank, meddler), options);
        for (int round = 0; round < kRounds; ++round) named.call(*group, in, mine.out, n);
        group->barrier();
      } catch (const CommError& e) {
        mine.error = e.what();
      }
    });
  for (auto& thread : threads) thread.join();
  return outcomes;
}

}  // namespace

TEST_CASE("a bit that changes is noticed wherever it is, before anything of it is used", "[tcp]") {
  constexpr std::size_t kOffset = 4096;  // offset of the data; the counter is at 0
  std::mt19937 random(5);
  for (const std::size_t size : {0, 8, 64, 65, 2000, 2048, 2049, 4072, 5000, 200'000}) {
    std::vector<std::byte> data(size + 1);  // one more, so that data() is never null
    for (std::byte& b : data) b = static_cast<std::byte>(1 + random() % 255);
    const Traffic stream = frames_of(std::span(data).first(size), kOffset, true);
    REQUIRE(stream.size() == kHeader + size + kCounterFrame);
    const std::size_t words = (kOffset + size) / 8 + 1;
    const Received whole = receive(stream, words, true, 1);
    REQUIRE(whole.trouble.empty());
    REQUIRE(whole.counter() == 7);
    REQUIRE(std::memcmp(reinterpret_cast<const std::byte*>(whole.mirror.data()) + kOffset,
                        data.data(), size) == 0);
    std::vector<std::size_t> bits;
    const auto every_bit_of = [&](std::size_t begin, std::size_t bytes) {
      for (std::size_t bit = 8 * begin; bit < 8 * (begin + bytes); ++bit) bits.push_back(bit);
    };
    every_bit_of(0, kHeader);
    every_bit_of(kHeader + size, kCounterFrame);
    if (size > 0) {
      every_bit_of(kHeader, 1);
      every_bit_of(kHeader + size - 1, 1);
      for (int i = 0; i < 20; ++i) bits.push_back(8 * kHeader + random() % (8 * size));
    }
    std::size_t missed = 0, published = 0, written = 0;
    for (const std::size_t bit : bits) {
      Traffic changed = stream;
      flip(changed, bit);
      const Received r = receive(changed, words, true, static_cast<std::uint32_t>(bit));
      missed += r.damaged && r.trouble.find(kReason) == 0 ? 0 : 1;
      published += r.counter() == 0 ? 0 : 1;
      // Only large frames are written before their checksum is compared.
      const bool in_header = bit < 8 * kHeader, in_bytes = bit < 8 * (kHeader + size);
      if (in_header || (in_bytes && size <= 2048)) written += r.untouched() ? 0 : 1;
    }
    INFO(size << " bytes, " << bits.size() << " bits");
    CHECK(missed == 0);
    CHECK(published == 0);
    CHECK(written == 0);
  }
}

TEST_CASE("without checksums a bit that changes in the bytes is not noticed", "[tcp]") {
  const std::vector<std::byte> data(5000, std::byte{1});
  Traffic stream = frames_of(data, 8, false);
  flip(stream, 8 * (kHeader + 1000));
  const Received r = receive(stream, 1 + data.size() / 8, false, 1);
  CHECK(r.trouble.empty());
  CHECK_FALSE(r.damaged);
  CHECK(r.counter() == 7);
  CHECK(reinterpret_cast<const std::byte*>(r.mirror.data())[8 + 1000] == std::byte{0});
}

TEST_CASE("a bit that the network changes ends every call on all ranks, with the reason", "[tcp]") {
  int number = 0;
  for (const int world : {2, 3})
    for (const std::size_t n : {std::size_t{50}, std::size_t{70'001}})
      for (const NamedCall& named : all_calls()) {
        Meddler watches(true, kNever);
        const std::vector<Outcome> right = run_meddled(world, named, n, watches, true);
        for (const Outcome& outcome : right) REQUIRE(outcome.error.empty());
        for (const bool to_listener : {true, false}) {
          // Flips a bit of the first byte, or of a byte in the middle. Skips the greeting, which
          // only the connecting rank sends.
          const std::uint64_t begin = to_listener ? kGreeting : 0;
          const std::uint64_t end = watches.carried(to_listener);
          const std::uint64_t byte = ++number % 2 == 0 ? begin : begin + (end - begin) / 2;
          Meddler meddler(to_listener, byte);
          const std::vector<Outcome> got = run_meddled(world, named, n, meddler, true);
          const int from = to_listener ? world - 1 : 0, to = world - 1 - from;
          for (std::size_t rank = 0; rank < got.size(); ++rank) {
            INFO(named.name << ", n = " << n << ", byte " << byte << " of " << end << " from rank "
                            << from << " to " << to << " of " << world << ", on rank " << rank);
            CHECK_THAT(
                got[rank].error,
                ContainsSubstring("the bytes from rank " + std::to_string(from) + " (pid ") &&
                    ContainsSubstring(" to rank " + std::to_string(to) + ' ' + kReason) &&
                    ContainsSubstring("[rank " + std::to_string(rank)));
          }
        }
      }
}

TEST_CASE("without checksums a rank computes with a bit that the network has changed", "[tcp]") {
  const auto calls = all_calls();
  const auto gather = std::ranges::find(calls, std::string("all_gather"), &NamedCall::name);
  constexpr std::size_t kCount = 300'007;
  Meddler watches(false, kNever);
  const std::vector<Outcome> right = run_meddled(2, *gather, kCount, watches, false);
  // Flips a bit of the last round, because each round overwrites the results of the previous one.
  Meddler meddler(false, watches.carried(false) - kCount * sizeof(float) / 2);
  const std::vector<Outcome> got = run_meddled(2, *gather, kCount, meddler, false);
  CHECK((got[0].error + got[1].error).empty());
  CHECK(got[0].out == right[0].out);
  CHECK(got[1].out != right[1].out);
}
