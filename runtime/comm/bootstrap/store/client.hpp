// The store as seen from another process.
#pragma once

#include <mutex>

#include "runtime/comm/bootstrap/store/address.hpp"
#include "runtime/comm/bootstrap/store/message.hpp"
#include "runtime/comm/bootstrap/store/seal.hpp"
#include "runtime/comm/bootstrap/store/store.hpp"

namespace ringsmith::comm {

// One connection, used by one thread at a time; others wait for their turn.
class StoreClient : public Store {
 public:
  // Tries until the deadline: the server may start later than its clients. CommError at once if
  // what listens there is no store, or refuses the secret; TimeoutError if nobody answers.
  // holder: who holds the store, for messages: ", which rank 0 holds,".
  StoreClient(store::Address address, const Secret& secret, Deadline deadline,
              std::string holder = "");

  void set(const std::string& key, const std::string& value) override;
  [[nodiscard]] std::string get(const std::string& key, Milliseconds timeout) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  [[nodiscard]] std::vector<std::string> wait(const std::vector<std::string>& keys,
                                              Milliseconds timeout) override;
  std::string compare_and_swap(const std::string& key, const std::string& expected,
                               const std::string& desired) override;
  bool remove(const std::string& key) override;
  void leave_will(const std::vector<std::string>& keys, const std::string& value) override;
  [[nodiscard]] std::string name() const override {
    return "the store at " + address_.str() + holder_;
  }

 private:
  // Connects and proves. False, with the reason, if another try may succeed.
  [[nodiscard]] bool try_connect(const Secret& secret, Deadline deadline, std::string& why);
  // Sends, and waits for the reply: at most `timeout`, and some time for the wire.
  store::Message call(const store::Message& request, Milliseconds timeout = {});
  void send_all(std::string_view bytes, Deadline deadline);
  // Appends what comes until there are at least `size` bytes; false at the connection's end.
  [[nodiscard]] bool receive(std::string& bytes, std::size_t size, Deadline deadline);

  store::Address address_;
  std::string holder_;
  Descriptor socket_;
  std::mutex turn_;
  std::string input_;
  std::optional<store::Sealer> sealer_;
  std::optional<store::Opener> opener_;
};

}  // namespace ringsmith::comm
