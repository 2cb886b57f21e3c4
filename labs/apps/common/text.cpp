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

std::size_t terminal_width(std::size_t fallback, int file) {
  winsize size{};
  if (ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return fallback;
}

}  // namespace ringsmith::apps
