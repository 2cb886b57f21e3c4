// One connection of the store's server as a state machine: bytes in, bytes out. It has no socket
// and no clock, so that tests and the fuzzer can drive it byte by byte.
//
//     stranger --right proof--> member --get/wait of a missing key--> waiting --key/time--> member
//        |  wrong proof, time over             | broken frame
//        v                                     v
//     closing                               closing
//
// At most kProof bytes from a stranger are buffered. A member's input is limited to one frame and
// its output to one reply: its next request is handled after that reply has been sent.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "runtime/job/store/coordinator.hpp"
#include "runtime/job/store/secret.hpp"
#include "runtime/job/store/store.hpp"

namespace ringsmith::comm::store {

struct TableLimits {
  std::size_t keys = std::size_t{1} << 16;
  std::size_t bytes = std::size_t{64} << 20;  // of keys and values together
};

// The table of the store: texts by key, with limits on their number and size. Sessions that wait
// for keys check again after each change.
//
// store.hpp specifies the operations. Those that write also throw UsageError if a key is empty or
// longer than kMostKey, a value is longer than kMostValue, or the table is full.
class KeyTable {
 public:
  explicit KeyTable(TableLimits limits = {}) : limits_(limits) {}

  [[nodiscard]] const std::string* find(const std::string& key) const;  // nullptr: missing
  void set(const std::string& key, std::string value);
  std::int64_t add(const std::string& key, std::int64_t amount);
  std::string compare_and_swap(const std::string& key, const std::string& expected,
                               const std::string& desired);
  bool remove(const std::string& key);
  void remove_all(const std::string& prefix);

  [[nodiscard]] std::size_t size() const { return values_.size(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  TableLimits limits_;
  std::unordered_map<std::string, std::string> values_;
  std::size_t bytes_ = 0;
};

class Session {
 public:
  using Clock = std::chrono::steady_clock;

  // coordinator: nullptr if the store has none.
  Session(KeyTable& table, const Secret& secret, Clock::time_point now,
          std::chrono::milliseconds handshake, Coordinator* coordinator = nullptr);

  // Number of bytes that receive() accepts now. If it is 0, the bytes must stay in the socket.
  [[nodiscard]] std::size_t room() const;
  void receive(std::string_view bytes);
  // Performs at most one action, and returns true if there was one. Call it for all sessions of the
  // table until all return false, because one session may wait for a key that another has just
  // written.
  bool advance(Clock::time_point now);

  // The bytes to send. The caller erases sent bytes from the front.
  [[nodiscard]] std::string& output() { return output_; }
  [[nodiscard]] bool member() const { return member_; }
  // True if the connection must be closed after an attempt to send output().
  [[nodiscard]] bool closing() const { return closing_; }
  // Returns the time by which advance() must be called again.
  [[nodiscard]] std::optional<Clock::time_point> alarm() const;
  // Called when the connection has ended. Writes the member's will and notifies the coordinator.
  void leave(Clock::time_point now);

 private:
  void judge_proof();
  void answer(const Message& request, Clock::time_point now);
  [[nodiscard]] bool settle_wait(Clock::time_point now);
  [[nodiscard]] bool settle_quorum(Clock::time_point now);
  void reply(const Message& message);

  KeyTable& table_;
  const Secret& secret_;
  Handshake handshake_;
  Clock::time_point proof_due_;
  std::string input_, output_;
  bool member_ = false, closing_ = false;
  std::optional<Opener> opener_;
  std::optional<Sealer> sealer_;
  struct Wait {
    Message request;
    Clock::time_point until;
  };
  std::optional<Wait> wait_;
  std::vector<std::string> will_;  // the value, then the keys
  Coordinator* coordinator_;
  bool asks_ = false;  // has asked for a quorum and has no reply yet
};

}  // namespace ringsmith::comm::store
