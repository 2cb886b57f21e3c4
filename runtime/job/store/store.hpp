// The store: a small table of texts that all processes of a job can read, write and wait for.
//
// Ranks use it to exchange their addresses. It is not meant for large values or frequent use.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ringsmith::comm {

inline constexpr std::size_t kMostKey = 512;                          // bytes
inline constexpr std::size_t kMostValue = std::size_t{256} << 10;     // bytes
inline constexpr std::size_t kMostKeysAtOnce = std::size_t{1} << 14;  // per wait()

class Store {
 public:
  using Milliseconds = std::chrono::milliseconds;
  virtual ~Store() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits until the key exists and returns its value. Throws TimeoutError naming the key.
  [[nodiscard]] virtual std::string get(const std::string& key, Milliseconds timeout) = 0;
  // Adds to a counter, which is stored as decimal text; a missing key counts as 0. Returns the new
  // value. Throws UsageError if the value is not a number or the sum does not fit in 64 bits.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
  // Waits until all keys exist. Returns the keys that are missing after `timeout` (0: looks once).
  [[nodiscard]] virtual std::vector<std::string> wait(const std::vector<std::string>& keys,
                                                      Milliseconds timeout) = 0;
  // Writes `desired` if the key holds `expected`, where a missing key holds "". Returns the value
  // afterwards. If all callers expect "", all get the first caller's text.
  virtual std::string compare_and_swap(const std::string& key, const std::string& expected,
                                       const std::string& desired) = 0;
  virtual bool remove(const std::string& key) = 0;  // true if it existed
  // Sets this client's will: when its connection ends, for whatever reason, the store writes
  // `value` under the first of the keys that is missing. Replaces an earlier will.
  virtual void leave_will(const std::vector<std::string>& keys, const std::string& value) = 0;

  // For messages, e.g. "the store at 10.0.0.1:29500".
  [[nodiscard]] virtual std::string name() const = 0;
};

}  // namespace ringsmith::comm

namespace ringsmith::comm::store {

// The protocol between a store and its clients. Requests and replies have the same form:
//
//     u8 kind | i64 number | u32 texts | for each text: u32 length, bytes          little endian
//
//     kind               number           texts               reply: number        texts
//     set                                 key, value
//     get                timeout, ms      key                                      value
//     add                amount           key                 new value
//     wait               timeout, ms      keys                                     missing keys
//     compare_and_swap                    key, expected,                           value afterwards
//                                         desired
//     remove                              key                 1 if it was there
//     leave_will                          value, keys
//     ask_quorum                          QuorumAsk                                QuorumAnswer
//
// The kind of a reply is its Status; a `refused` reply has a text with the reason.
inline constexpr std::size_t kMostMessage = std::size_t{1} << 20;  // bytes

enum class RequestKind : std::uint8_t {
  set = 1,
  get,
  add,
  wait,
  compare_and_swap,
  remove,
  leave_will,
  ask_quorum  // coordinator.hpp
};
enum class Status : std::uint8_t { ok = 0, timeout = 1, refused = 2 };

struct Message {
  std::uint8_t kind = 0;
  std::int64_t number = 0;
  std::vector<std::string> texts;

  // Throws UsageError if it would be longer than kMostMessage.
  [[nodiscard]] std::string encode() const;
  // Throws CommError if the bytes are not exactly one message.
  static Message decode(std::string_view bytes);
};

inline Message make_message(RequestKind kind, std::int64_t number, std::vector<std::string> texts) {
  return {static_cast<std::uint8_t>(kind), number, std::move(texts)};
}
inline Message make_message(Status status, std::int64_t number = 0,
                            std::vector<std::string> texts = {}) {
  return {static_cast<std::uint8_t>(status), number, std::move(texts)};
}

// Write and read little-endian numbers in byte strings.
void append_number(std::string& out, std::uint64_t value, int bytes);
[[nodiscard]] std::uint64_t read_number(std::string_view bytes);

}  // namespace ringsmith::comm::store
