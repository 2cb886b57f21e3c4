// A client of a store that usually runs in another process.
#pragma once

#include <mutex>

#include "runtime/base/error.hpp"
#include "runtime/comm/transport/tcp/address.hpp"
#include "runtime/job/store/coordinator.hpp"
#include "runtime/job/store/secret.hpp"
#include "runtime/job/store/store.hpp"

namespace ringsmith::comm {

// Thrown if no store answers before the deadline.
class NoStore : public TimeoutError {
 public:
  // refused: no process listens there; silent: a process accepts the connection but never answers;
  // unreachable: no connection can be made for another reason.
  enum class How { refused, silent, unreachable };
  NoStore(const std::string& message, How how) : TimeoutError(message), how_(how) {}
  [[nodiscard]] How how() const { return how_; }

 private:
  How how_;
};

struct StoreClientOptions {
  std::string holder = {};  // the store's holder, for messages: ", which rank 0 holds,"
  int door = -1;            // outer end of the store's door (door.hpp), tried before TCP; -1: none
  int hurry = -1;           // a descriptor; once it is readable, calls that wait throw CommError
};

// Concurrent calls are serialized.
class StoreClient : public Store {
 public:
  // Retries until the deadline, because the server may start later than its clients. After 5 s,
  // prints a line to standard error. Throws MismatchError immediately if the listener is not a
  // store or rejects the secret, NoStore if there is no answer, and UsageError if the host's name
  // is unknown.
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
  // Asks the coordinator in the store's server. Throws TimeoutError if there can be no
  // further quorum (with the coordinator's message) or no answer arrives in time, and UsageError if
  // the store has no coordinator.
  [[nodiscard]] store::QuorumAnswer ask_quorum(const store::QuorumAsk& ask, Milliseconds timeout);
  void hurry_at(int descriptor) { options_.hurry = descriptor; }
  // From now on, the store counts as lost if a reply takes longer than the call's own timeout plus
  // `time`.
  void answer_within(Milliseconds time) { to_answer_ = time; }
  [[nodiscard]] std::string name() const override {
    return "the store at " + address_.str() + options_.holder;
  }

 private:
  // Connects and does the handshake. Returns false, with the reason in `why`, if a retry may
  // succeed.
  [[nodiscard]] bool try_connect(const Secret& secret, Deadline deadline, std::string& why);
  // Waits for the reply for at most `timeout` + to_answer_.
  store::Message call(const store::Message& request, Milliseconds timeout = {});
  void send_all(std::string_view bytes, Deadline deadline);
  // Blocks until the socket is ready (events 0: until the deadline). Returns false at the deadline.
  [[nodiscard]] bool await(short events, Deadline deadline);
  // Appends received bytes until `bytes` has at least `size`; false if the connection has ended.
  [[nodiscard]] bool receive(std::string& bytes, std::size_t size, Deadline deadline);

  tcp::Address address_;
  StoreClientOptions options_;
  Milliseconds to_answer_{10'000};                    // for the reply, on top of the timeout
  NoStore::How silence_ = NoStore::How::unreachable;  // why the last attempt failed
  Descriptor socket_;
  std::mutex turn_;
  std::string input_;
  std::optional<store::Sealer> sealer_;
  std::optional<store::Opener> opener_;
};

}  // namespace ringsmith::comm
