#include "runtime/job/store/client.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include "runtime/base/process.hpp"
#include "runtime/job/store/door.hpp"

namespace ringsmith::comm {

namespace {

using std::chrono::milliseconds;
using store::make_message;

constexpr milliseconds kFirstPause{5}, kLongestPause{250};  // between two attempts to connect
constexpr milliseconds kOneTry{3000};                       // per attempt, with the handshake
constexpr milliseconds kPatience{5000};                     // before a message to the user

class Cancelled : public CommError {
 public:
  using CommError::CommError;
};

std::string seconds(milliseconds time) {
  return fmt::format("{} s", static_cast<double>(time.count()) / 1000);
}

}  // namespace

StoreClient::StoreClient(tcp::Address address, const Secret& secret, Deadline deadline,
                         StoreClientOptions options)
    : address_(std::move(address)), options_(std::move(options)) {
  const milliseconds whole = deadline.left();
  const Deadline patience = Deadline::in(kPatience);
  std::string why = "no time was left to try";
  bool said = false;
  for (milliseconds pause = kFirstPause; !try_connect(secret, deadline, why);
       pause = std::min(2 * pause, kLongestPause)) {
    socket_ = Descriptor();
    if (deadline.passed())
      throw NoStore(
          "no store answered at " + address_.str() + " within " + seconds(whole) + ": " + why,
          silence_);
    if (!said && patience.passed()) {
      said = true;
      std::fprintf(stderr, "ringsmith: still trying to reach %s: %s\n", name().c_str(),
                   why.c_str());
    }
    (void)await(0, deadline.at_most(pause));
  }
}

bool StoreClient::try_connect(const Secret& secret, Deadline deadline, std::string& why) {
  const Deadline limit = deadline.at_most(kOneTry);
  if (options_.door >= 0) {
    socket_ = store::knock(options_.door, limit);
    if (!socket_.valid()) options_.door = -1;  // no store at the other end; TCP reports the reason
  }
  if (!socket_.valid()) {
    int error = 0;
    socket_ = tcp::connect_to(address_, limit, why, &error);
    silence_ = error == ECONNREFUSED ? NoStore::How::refused : NoStore::How::unreachable;
  }
  if (!socket_.valid()) return false;
  silence_ = NoStore::How::silent;
  try {
    std::string hello;
    why = "the program there closed the connection or did not answer";
    if (!receive(hello, store::kHello, limit)) return false;
    if (hello.compare(0, store::kMagic.size(), store::kMagic) != 0)
      throw MismatchError("the program at " + address_.str() +
                          " is not a store of this version of ringsmith: another program has the "
                          "port; choose another");
    const store::Handshake handshake{hello.substr(store::kMagic.size(), store::kNonce),
                                     random_bytes(store::kNonce)};
    std::string verdict = hello.substr(store::kHello);  // a genuine store has not sent more yet
    send_all(handshake.client_nonce + handshake.client_proof(secret), limit);
    if (!receive(verdict, store::kVerdict, limit)) return false;
    if (verdict[0] == '\0')
      throw MismatchError(StoreClient::name() +
                          " refused this process: its secret is not the job's. Either " +
                          kSecretVariable + " or " + kSecretFileVariable +
                          " differs, or the port belongs to another job");
    if (!store::equal_tags(std::string_view(verdict).substr(1, store::kTag),
                           handshake.store_proof(secret)))
      throw MismatchError("the store at " + address_.str() +
                          " does not know the job's secret: it is not this job's store");
    const std::string key = handshake.session_key(secret);
    sealer_.emplace(key, store::Direction::to_store);
    opener_.emplace(key, store::Direction::to_client);
    return true;
  } catch (const MismatchError&) {
    throw;
  } catch (const Cancelled&) {
    throw;
  } catch (const CommError& e) {
    why = e.what();
    return false;
  }
}

bool StoreClient::await(short events, Deadline deadline) {
  std::array<pollfd, 2> entries{
      {{events != 0 ? socket_.get() : -1, events, 0}, {options_.hurry, POLLIN, 0}}};
  const bool ready = poll(entries.data(), entries.size(), deadline.poll_ms()) > 0;
  if (ready && entries[1].revents != 0) throw Cancelled("waiting for " + name() + " was cancelled");
  return ready || !deadline.passed();
}

void StoreClient::send_all(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
      continue;
    }
    if (errno != EAGAIN && errno != EINTR && !is_lack(errno))
      throw CommError(name() + " is gone: " + std::strerror(errno));
    if (!await(POLLOUT, deadline)) throw TimeoutError(name() + " accepts no more requests");
  }
}

bool StoreClient::receive(std::string& bytes, std::size_t size, Deadline deadline) {
  std::array<char, std::size_t{1} << 14> block{};
  while (bytes.size() < size) {
    const ssize_t n = ::recv(socket_.get(), block.data(), block.size(), 0);
    if (n > 0) {
      bytes.append(block.data(), static_cast<std::size_t>(n));
      continue;
    }
    if (n == 0) return false;
    if (errno != EAGAIN && errno != EINTR)
      throw CommError(name() + " is gone: " + std::strerror(errno));
    if (!await(POLLIN, deadline)) throw TimeoutError(name() + " does not answer");
  }
  return true;
}

store::Message StoreClient::call(const store::Message& request, milliseconds timeout) {
  const std::string body = request.encode();
  const std::lock_guard lock(turn_);
  if (!socket_.valid()) throw CommError(name() + " is gone: an earlier call failed");
  try {
    const Deadline deadline = Deadline::in(limited(timeout) + to_answer_);
    send_all(sealer_->seal(body), deadline);
    for (;;) {
      if (const auto answer = opener_->open(input_); answer) {
        store::Message reply = store::Message::decode(*answer);
        if (reply.kind == static_cast<std::uint8_t>(store::Status::refused))
          throw UsageError(name() + ": " + (reply.texts.empty() ? "refused" : reply.texts[0]));
        return reply;
      }
      if (!receive(input_, input_.size() + 1, deadline))
        throw CommError(name() + " is gone: the process that held it has ended");
    }
  } catch (const UsageError&) {
    throw;
  } catch (const CommError&) {
    socket_ = Descriptor();  // requests and replies no longer match
    throw;
  }
}

void StoreClient::set(const std::string& key, const std::string& value) {
  call(make_message(store::RequestKind::set, 0, {key, value}));
}

std::string StoreClient::get(const std::string& key, milliseconds timeout) {
  store::Message reply =
      call(make_message(store::RequestKind::get, timeout.count(), {key}), timeout);
  if (reply.kind == static_cast<std::uint8_t>(store::Status::timeout))
    throw TimeoutError(name() + " has no key '" + key + "' after " + seconds(timeout));
  if (reply.texts.size() != 1) throw CommError(name() + " answered get() without a value");
  return std::move(reply.texts[0]);
}

std::int64_t StoreClient::add(const std::string& key, std::int64_t amount) {
  return call(make_message(store::RequestKind::add, amount, {key})).number;
}

std::vector<std::string> StoreClient::wait(const std::vector<std::string>& keys,
                                           milliseconds timeout) {
  return call(make_message(store::RequestKind::wait, timeout.count(), keys), timeout).texts;
}

std::string StoreClient::compare_and_swap(const std::string& key, const std::string& expected,
                                          const std::string& desired) {
  store::Message reply =
      call(make_message(store::RequestKind::compare_and_swap, 0, {key, expected, desired}));
  if (reply.texts.size() != 1)
    throw CommError(name() + " answered compare_and_swap() without a value");
  return std::move(reply.texts[0]);
}

bool StoreClient::remove(const std::string& key) {
  return call(make_message(store::RequestKind::remove, 0, {key})).number != 0;
}

void StoreClient::leave_will(const std::vector<std::string>& keys, const std::string& value) {
  std::vector<std::string> texts{value};
  texts.insert(texts.end(), keys.begin(), keys.end());
  call(make_message(store::RequestKind::leave_will, 0, std::move(texts)));
}

store::QuorumAnswer StoreClient::ask_quorum(const store::QuorumAsk& ask, milliseconds timeout) {
  const store::Message reply =
      call(make_message(store::RequestKind::ask_quorum, 0, {ask.encode()}), timeout);
  if (reply.texts.size() != 1) throw CommError(name() + " answered without a quorum");
  if (reply.kind == static_cast<std::uint8_t>(store::Status::timeout))
    throw TimeoutError(reply.texts[0]);
  return store::QuorumAnswer::decode(reply.texts[0]);
}

}  // namespace ringsmith::comm
