// fuzz_store BYTES [SEED]: feeds the store input that no honest process would send, and stops at
// the first violation (exit code 1). `make fuzz` runs it with 10 million bytes under
// AddressSanitizer.
//
//     strangers   random bytes; proofs with a wrong bit, truncated, or copied from another session
//     members     requests with wrong lengths, counts and kinds, in correctly sealed frames; broken
//                 frames; in pieces of any size
//     the server  random bytes over TCP, from clients that leave at any moment
//     a client    whose server knows the secret and answers nonsense
//
// Invariants: no crash; no stranger ever changes a key or reads a value; memory stays bounded; the
// server's messages are well-formed; and at the end the server still serves clients that know the
// secret.
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <limits>
#include <poll.h>
#include <random>
#include <string_view>
#include <sys/socket.h>
#include <thread>

#include "runtime/base/error.hpp"
#include "runtime/job/store/client.hpp"
#include "runtime/job/store/server.hpp"

namespace ringsmith {
namespace {

using namespace comm;
using namespace comm::store;
using namespace comm::tcp;
using namespace std::chrono_literals;

const Secret kSecret("the secret of the fuzzer", "the fuzzer");
const CoordinatorOptions kQuorums{.world = 2, .least = 1, .patience = 20ms};
constexpr const char* kCanary = "the canary's key, which no generator makes";
constexpr const char* kSong = "the canary's song, which no stranger may hear";

void must(bool condition, const char* what) {
  if (!condition) throw Error(what);
}

class Fuzzer {
 public:
  Fuzzer(std::size_t budget, std::uint64_t seed) : left_(budget), random_(seed) {}

  void run() {
    KeyTable table({.keys = 50, .bytes = 1 << 20});
    table.set(kCanary, kSong);
    StoreServer server(kSecret, {.quorums = kQuorums});
    const Address address{"127.0.0.1", server.port()};
    StoreClient(address, kSecret, Deadline::in(10s)).set(kCanary, kSong);
    for (std::uint64_t round = 0; left_ > 0; ++round) {
      stranger(table);
      member(table);
      if (round % 8 == 0) visit(address);
      if (round % 64 == 0) hostile_server();
    }
    StoreClient honest(address, kSecret, Deadline::in(10s));
    must(honest.get(kCanary, 0ms) == kSong, "the server forgot the canary");
    fmt::print(
        "{} strangers, {} members, {} of {} requests understood, {} visits over TCP, {} "
        "hostile servers: nothing that must not happen\n",
        strangers_, members_, understood_, requests_, visits_, servers_);
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }

  std::string garbage(std::size_t most) {
    std::string out(below(most + 1), '\0');
    for (char& c : out) c = static_cast<char>(random_());
    return out;
  }

  std::string injured(std::string text) {
    if (text.empty()) return garbage(40);
    const std::size_t at = below(text.size());
    switch (below(6)) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        text.resize(at);
        break;
      case 2:
        text += garbage(40);
        break;
      case 3:  // the largest possible number
        for (std::size_t i = at; i < std::min(at + 4, text.size()); ++i) text[i] = '\xff';
        break;
      case 4:
        text.erase(at, 1 + below(8));
        break;
      default:
        text.insert(at, garbage(20));
    }
    return text;
  }

  Message request() {
    static constexpr const char* kKeys[] = {"a", "b", "counter", "", "x/y/z"};
    const auto key = [&] { return below(50) == 0 ? garbage(600) : std::string(kKeys[below(5)]); };
    const auto value = [&] { return below(3) == 0 ? std::to_string(random_()) : garbage(60); };
    const auto kind = static_cast<RequestKind>(1 + below(8));
    Message m = make_message(kind, static_cast<std::int64_t>(random_()) % 3, {});
    if (below(10) == 0) m.number = static_cast<std::int64_t>(random_());
    static constexpr std::size_t kTexts[] = {2, 1, 1, 3, 3, 1, 2, 1};  // by kind
    std::size_t n = kTexts[static_cast<std::size_t>(kind) - 1];
    if (below(10) == 0) n = below(6);
    for (std::size_t i = 0; i < n; ++i) m.texts.push_back(i == 0 ? key() : value());
    if (kind == RequestKind::ask_quorum && n > 0 && below(10) != 0)
      m.texts[0] = fmt::format("{} {} {} x", below(4), below(4), below(2));
    return m;
  }

  // Feeds the bytes in pieces, and lets the session work in between, as a server would.
  void feed(Session& session, std::string_view bytes) {
    left_ -= std::min(left_, bytes.size());
    while (!bytes.empty() && session.room() > 0) {
      const std::size_t n = std::min({bytes.size(), 1 + below(80), session.room()});
      session.receive(bytes.substr(0, n));
      bytes.remove_prefix(n);
      work(session);
    }
  }
  void work(Session& session) {
    do {
      heard_ += session.output();
      session.output().clear();
      now_ += 1ms;
    } while (session.advance(now_));
    must(session.output().size() <= kMostMessage + 100, "an output without bounds");
  }

  void stranger(KeyTable& table) {
    ++strangers_;
    Session session(table, kSecret, now_, 1000ms, &coordinator_);
    const auto quorum = coordinator_.quorum();
    const std::size_t joiners = coordinator_.joiners();
    heard_.clear();
    work(session);
    Handshake h{heard_.substr(kMagic.size(), kNonce), std::string(kNonce, 'c')};
    const std::string proof = h.client_nonce + h.client_proof(kSecret);
    const std::size_t keys = table.size(), bytes = table.bytes();
    switch (below(4)) {
      case 0:
        feed(session, garbage(200));
        break;
      case 1: {  // one wrong bit
        std::string wrong = proof;
        wrong[below(wrong.size())] ^= static_cast<char>(1 << below(8));
        feed(session, wrong + garbage(100));
        break;
      }
      case 2:
        feed(session, proof.substr(0, below(proof.size())));
        break;
      default:  // a correct proof for another session
        feed(session, (recorded_.empty() ? garbage(kProof) : recorded_) + garbage(100));
    }
    must(!session.member(), "a stranger was let in");
    now_ += 2000ms;
    work(session);
    session.leave(now_);
    must(session.closing(), "a stranger was not sent away in time");
    must(table.size() == keys && table.bytes() == bytes, "a stranger changed the table");
    must(coordinator_.quorum() == quorum && coordinator_.joiners() == joiners &&
             !coordinator_.alarm(),
         "the coordinator listened to a stranger");
    must(heard_.size() <= kHello + kVerdict, "a stranger heard more than a refusal");
    recorded_ = proof;
  }

  void member(KeyTable& table) {
    ++members_;
    if (coordinator_.over() || !coordinator_.failure().empty())
      coordinator_ = Coordinator(kQuorums);
    Session session(table, kSecret, now_, 1000ms, &coordinator_);
    heard_.clear();
    work(session);
    const Handshake h{heard_.substr(kMagic.size(), kNonce), random_bytes(kNonce)};
    heard_.clear();
    feed(session, h.client_nonce + h.client_proof(kSecret));
    must(session.member() && heard_.size() == kVerdict, "a member was refused");
    heard_.clear();
    Sealer sealer(h.session_key(kSecret), Direction::to_store);
    Opener opener(h.session_key(kSecret), Direction::to_client);
    for (std::size_t n = below(20); n > 0 && !session.closing(); --n) {
      ++requests_;
      std::string body = request().encode();
      if (below(3) == 0) body = injured(body);
      std::string frame = sealer.seal(body);
      const bool broken = below(30) == 0;
      if (broken) frame = injured(frame);
      feed(session, frame);
      now_ += 5ms;  // longer than the usual waits of request()
      work(session);
      while (const auto answer = opener.open(heard_)) {
        must(Message::decode(*answer).kind <= 2, "an answer of no kind");
        ++understood_;
      }
    }
    session.leave(now_);
    must(!coordinator_.is_dropped(&session) || session.closing(), "a dropped rank was kept");
    must(table.size() <= 50 && table.bytes() <= 1 << 20, "the table has outgrown its limits");
    must(*table.find(kCanary) == kSong, "the canary's song has changed");
  }

  // Sends garbage over TCP. In half of the cases, the answer is read: at most a refusal.
  void visit(const Address& address) {
    ++visits_;
    std::string why;
    const Descriptor socket = connect_to(address, Deadline::in(10s), why);
    must(socket.valid(), "the server does not listen any more");
    const std::string bytes = injured(garbage(300));
    left_ -= std::min(left_, bytes.size());
    ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    std::string answer(500, '\0');
    if (below(2) == 0) {
      pollfd entry{socket.get(), POLLIN, 0};
      poll(&entry, 1, 5);
      const ssize_t n = recv(socket.get(), answer.data(), answer.size(), MSG_DONTWAIT);
      must(n <= static_cast<ssize_t>(kHello + kVerdict), "a visitor heard more than a refusal");
    }
  }

  void hostile_server() {
    ++servers_;
    const Listener listener = listen_on("127.0.0.1", 0);
    std::vector<std::string> answers;  // made here, because the generator is for one thread only
    for (int i = 0; i < 6; ++i) {
      const Message m = make_message(static_cast<Status>(below(4)), 7, {garbage(30)});
      answers.push_back(below(2) == 0 ? injured(m.encode()) : m.encode());
      left_ -= std::min(left_, answers.back().size());
    }
    const bool seals = below(4) != 0;
    std::thread server([&] { answer_nonsense(listener, answers, seals); });
    try {
      StoreClient client({"127.0.0.1", listener.port}, kSecret, Deadline::in(2s));
      for (int i = 0; i < 2; ++i) {
        static_cast<void>(client.compare_and_swap("k", "", "v"));
        static_cast<void>(client.add("k", 1));
        static_cast<void>(client.get("k", 0ms));
      }
    } catch (const Error&) {  // the error that an honest client reports about such a server
    }
    server.join();
  }

  static void answer_nonsense(const Listener& listener, const std::vector<std::string>& answers,
                              bool seals) {
    pollfd entry{listener.socket.get(), POLLIN, 0};
    if (poll(&entry, 1, 2000) != 1) return;
    const Descriptor socket(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const auto say = [&](const std::string& text) {
      ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    };
    Handshake h{random_bytes(kNonce), std::string(kNonce, '\0')};
    say(std::string(kMagic) + h.store_nonce);
    std::string proof(kProof, '\0');
    if (recv(socket.get(), proof.data(), kProof, MSG_WAITALL) != kProof) return;
    h.client_nonce = proof.substr(0, kNonce);
    say('\1' + h.store_proof(kSecret));
    Sealer sealer(h.session_key(kSecret), Direction::to_client);
    std::string ignored(4096, '\0');
    for (const std::string& answer : answers) {
      pollfd request{socket.get(), POLLIN, 0};  // the client may still wait for a whole frame
      if (poll(&request, 1, 50) != 1) return;
      if (recv(socket.get(), ignored.data(), ignored.size(), 0) <= 0) return;
      say(seals ? sealer.seal(answer) : answer);
    }
  }

  Coordinator coordinator_{kQuorums};
  std::size_t left_;
  std::mt19937_64 random_;
  Session::Clock::time_point now_ = Session::Clock::now();
  std::string heard_;     // output of the session under test
  std::string recorded_;  // a proof that was right for an earlier session
  std::size_t strangers_ = 0, members_ = 0, requests_ = 0, understood_ = 0, visits_ = 0,
              servers_ = 0;
};

}  // namespace
}  // namespace ringsmith

int main(int argc, char** argv) {
  using namespace ringsmith;
  return run_main("fuzz_store", [&] {
    const auto number = [&](int at, std::uint64_t least, std::uint64_t most) {
      const std::string_view text = argc > at ? argv[at] : "";
      std::uint64_t value = 0;
      const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
      require(
          error == std::errc() && end == text.end() && value >= least && value <= most,
          fmt::format("'{}' is not a whole number from {} to {}; usage: fuzz_store BYTES [SEED]",
                      text, least, most));
      return value;
    };
    const std::size_t budget = number(1, 1, std::uint64_t{1} << 40);
    const std::uint64_t seed =
        argc > 2 ? number(2, 0, std::numeric_limits<std::uint64_t>::max()) : std::random_device{}();
    fmt::print("fuzz_store {} {}\n", budget, seed);
    std::fflush(stdout);
    Fuzzer(budget, seed).run();
    return 0;
  });
}
