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
//
// The kind of a reply is its Status; with `refused` comes a text that says why.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ringsmith::comm::store {

inline constexpr std::size_t kMostMessage = std::size_t{1} << 20;  // bytes

enum class Kind : std::uint8_t { set = 1, get, add, wait, compare_and_swap, remove, leave_will };
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
