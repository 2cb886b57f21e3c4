#include "runtime/job/store/store.hpp"

#include "runtime/base/error.hpp"

namespace ringsmith::comm::store {

void append_number(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

std::uint64_t read_number(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

std::string Message::encode() const {
  std::string out;
  append_number(out, kind, 1);
  append_number(out, static_cast<std::uint64_t>(number), 8);
  append_number(out, texts.size(), 4);
  for (const std::string& text : texts) {
    append_number(out, text.size(), 4);
    out += text;
  }
  if (out.size() > kMostMessage)
    throw UsageError("a message of " + std::to_string(out.size()) +
                     " bytes to the store: at most " + std::to_string(kMostMessage) + " fit");
  return out;
}

Message Message::decode(std::string_view bytes) {
  const auto take = [&bytes](std::size_t n) {
    if (n > bytes.size()) throw CommError("a message to or from the store ends too early");
    const std::string_view taken = bytes.substr(0, n);
    bytes.remove_prefix(n);
    return taken;
  };
  Message m;
  m.kind = static_cast<std::uint8_t>(read_number(take(1)));
  m.number = static_cast<std::int64_t>(read_number(take(8)));
  // Does not reserve memory for the texts: the count may be larger than the number of bytes allows.
  for (std::uint64_t left = read_number(take(4)); left > 0; --left)
    m.texts.emplace_back(take(read_number(take(4))));
  if (!bytes.empty()) throw CommError("a message to or from the store is longer than it says");
  return m;
}

}  // namespace ringsmith::comm::store
