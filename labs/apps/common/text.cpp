#include "labs/apps/common/text.hpp"

#include <fmt/format.h>
#include <sstream>
#include <sys/ioctl.h>

namespace ringsmith::apps {

std::string wrapped(const std::string& text, std::size_t indent, std::size_t width,
                    const std::string& head) {
  std::istringstream words(text);
  std::string out = head;
  std::size_t at = head.empty() ? indent : head.size();
  bool fresh = true;
  for (std::string word; words >> word; fresh = false) {
    if (!fresh && at + 1 + word.size() > width) {
      out += '\n' + std::string(indent, ' ');
      at = indent;
      fresh = true;
    }
    out += (fresh ? "" : " ") + word;
    at += (fresh ? 0 : 1) + word.size();
  }
  return out;
}

namespace {

// Bytes of the printable character that the text starts with; 0: it starts with none.
std::size_t printable_at_start(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  return first == 0xc2 && byte(1) < 0xa0 ? 0 : size;  // U+0080 to U+009F control terminals, too
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::size_t size = printable_at_start(text);
    if (size > 0) {
      out += text.substr(0, size);
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
      size = 1;
    }
    text.remove_prefix(size);
  }
  return out;
}

std::size_t terminal_width(std::size_t fallback, int file) {
  winsize size{};
  if (ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return fallback;
}

}  // namespace ringsmith::apps
