// The store as seen from another process.
#pragma once

#include <mutex>

#include "runtime/base/error.hpp"
#include "runtime/comm/bootstrap/store/coordinator.hpp"
#include "runtime/comm/bootstrap/store/secret.hpp"
#include "runtime/comm/bootstrap/store/store.hpp"
#include "runtime/comm/transport/tcp/address.hpp"

namespace ringsmith::comm {

// No store has answered within the time.
class NoStore : public TimeoutError {
 public:
  // refused: no process listens there; silent: a process accepts the connection, but never gives a
  // store's answer; unreachable: the host does not respond.
  enum class How { refused, silent, unreachable };
  NoStore(const std::string& message, How how) : TimeoutError(message), how_(how) {}
  [[nodiscard]] How how() const { return how_; }

 private:
  How how_;
};

struct StoreClientOptions {
  std::string holder = {};  // who holds the store, for messages: ", which rank 0 holds,"
  int door = -1;            // the outside of a door to it (door.hpp), which is tried before TCP
  int hurry = -1;           // a descriptor; when it is readable, every call ends with a CommError
};

// One connection, used by one thread at a time; others wait for their turn.
class StoreClient : public Store {
 public:
  // Tries until the deadline: the server may start later than its clients. After 5 s a line on
  // standard error says so. CommError at once if the listener is no store, or refuses the secret;
  // NoStore if there is no answer.
  StoreClient(tcp::Address address, const Secret& secret, Deadline deadline,
              StoreClientOptions options = {});

  void set(const std::string& key, const std::string& value) override;
  [[nodiscard]] std::string get(const std::string& key, Milliseconds timeout) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  [[nodiscard]] std::vector<std::string> wait(const std::vector<std::string>& keys,
                                              Milliseconds timeout) override;
  std::string compare_and_swap(const std::string& key, const std::string& expected,
                               const std::string& desired) override;
  bool remove(const std::string& key) override;
  void leave_will(const std::vector<std::string>& keys, const std::string& value) override;
  // Of the coordinator beside the store. TimeoutError with its words if there will be no quorum any
  // more, or no answer in time.
  [[nodiscard]] store::QuorumAnswer ask_quorum(const store::QuorumAsk& ask, Milliseconds timeout);
  // From now on, in place of StoreClientOptions::hurry.
  void hurry_at(int descriptor) { options_.hurry = descriptor; }
  // From now on a store counts as gone if its answer is later than a call's own timeout by `time`.
  void answer_within(Milliseconds time) { to_answer_ = time; }
  [[nodiscard]] std::string name() const override {
    return "the store at " + address_.str() + options_.holder;
  }

 private:
  // Connects and proves. False, with the reason, if another try may succeed.
  [[nodiscard]] bool try_connect(const Secret& secret, Deadline deadline, std::string& why);
  // Sends, and waits for the reply: at most `timeout`, and some time for the network.
  store::Message call(const store::Message& request, Milliseconds timeout = {});
  void send_all(std::string_view bytes, Deadline deadline);
  // Until the socket is ready (no socket: until the deadline). False if the deadline has passed.
  [[nodiscard]] bool await(short events, Deadline deadline);
  // Appends what comes until there are at least `size` bytes; false at the connection's end.
  [[nodiscard]] bool receive(std::string& bytes, std::size_t size, Deadline deadline);

  tcp::Address address_;
  StoreClientOptions options_;
  Milliseconds to_answer_{10'000};                    // a call that the store does not hold back
  NoStore::How silence_ = NoStore::How::unreachable;  // of the last try
  Descriptor socket_;
  std::mutex turn_;
  std::string input_;
  std::optional<store::Sealer> sealer_;
  std::optional<store::Opener> opener_;
};

}  // namespace ringsmith::comm
