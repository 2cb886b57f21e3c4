// The store: a small table of texts that all processes of a job can read and write, and wait for.
//
// It is what ranks have in common before they can talk to each other: they leave their addresses
// here and find those of the others. Nothing large and nothing frequent goes through it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ringsmith::comm {

inline constexpr std::size_t kMostKey = 512;                          // bytes
inline constexpr std::size_t kMostValue = std::size_t{256} << 10;     // bytes
inline constexpr std::size_t kMostKeysAtOnce = std::size_t{1} << 14;  // of one wait

class Store {
 public:
  using Milliseconds = std::chrono::milliseconds;
  virtual ~Store() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits until the key exists. TimeoutError naming it when the time is over.
  [[nodiscard]] virtual std::string get(const std::string& key, Milliseconds timeout) = 0;
  // A counter, kept as a decimal text; a missing key counts as 0. The new value. UsageError if the
  // key holds something that is not a number, or the sum does not fit 64 bits.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
  // Waits until all keys exist; those that are still missing when the time is over (0: look once).
  [[nodiscard]] virtual std::vector<std::string> wait(const std::vector<std::string>& keys,
                                                      Milliseconds timeout) = 0;
  // Writes `desired` if the key holds `expected`, where a missing key holds "". What it holds
  // afterwards: `desired` for the one who was first, the first one's text for all others.
  virtual std::string compare_and_swap(const std::string& key, const std::string& expected,
                                       const std::string& desired) = 0;
  virtual bool remove(const std::string& key) = 0;  // was it there?
  // What the store is to write when this client's connection ends, however it ends: `value` into
  // the first of the keys that holds nothing. Replaces an earlier will. This is how the death of a
  // process becomes a word to those that wait for it.
  virtual void leave_will(const std::vector<std::string>& keys, const std::string& value) = 0;

  // For messages: "the store at 10.0.0.1:29500".
  [[nodiscard]] virtual std::string name() const = 0;
};

}  // namespace ringsmith::comm

namespace ringsmith::comm::store {

// What a store and its clients say to each other. Requests and replies have one form, so that there
// is one decoder, and little of it to get wrong:
//
//     u8 kind | i64 number | u32 texts | for each text: u32 length, bytes          little endian
//
//     kind               number           texts               reply: number        texts
//     set                                 key, value
//     get                timeout, ms      key                                      value
//     add                amount           key                 new value
//     wait               timeout, ms      keys                                     missing keys
//     compare_and_swap                    key, expected,                           what is there
//                                         desired
//     remove                              key                 1 if it was there
//     leave_will                          value, keys
//     ask_quorum                          QuorumAsk                                QuorumAnswer
//
// The kind of a reply is its Status; with `refused` comes a text that says why.
inline constexpr std::size_t kMostMessage = std::size_t{1} << 20;  // bytes

enum class Kind : std::uint8_t {
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

  // UsageError if it would be longer than kMostMessage.
  [[nodiscard]] std::string encode() const;
  // CommError if the bytes are not exactly one message.
  static Message decode(std::string_view bytes);
};

inline Message make_message(Kind kind, std::int64_t number, std::vector<std::string> texts) {
  return {static_cast<std::uint8_t>(kind), number, std::move(texts)};
}
inline Message make_message(Status status, std::int64_t number = 0,
                            std::vector<std::string> texts = {}) {
  return {static_cast<std::uint8_t>(status), number, std::move(texts)};
}

// Little-endian numbers in byte strings.
void append_number(std::string& out, std::uint64_t value, int bytes);
[[nodiscard]] std::uint64_t read_number(std::string_view bytes);

}  // namespace ringsmith::comm::store
