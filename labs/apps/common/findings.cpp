#include "labs/apps/common/findings.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <sstream>

namespace ringsmith::apps {

namespace {

constexpr std::array<const char*, 4> kNames{"ok", "note", "warn", "FAIL"};
constexpr std::size_t kIndent = 20;  // columns before the text

}  // namespace

std::string fill_line(const std::string& head, const std::string& text, std::size_t indent,
                      std::size_t width) {
  std::string out, line = head;
  bool fresh = true;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!fresh && line.size() + 1 + word.size() > width) {
      out += line + '\n';
      line = std::string(indent, ' ');
      fresh = true;
    }
    line += (fresh ? "" : " ") + word;
    fresh = false;
  }
  return out + line + '\n';
}

std::string render(const Findings& findings, std::size_t width) {
  std::string out;
  for (const Finding& f : findings) {
    out += fill_line(
        fmt::format("{:<6}{:<14}", kNames[static_cast<std::size_t>(f.verdict)], f.subject), f.fact,
        kIndent, width);
    if (!f.remedy.empty())
      out += fill_line(std::string(kIndent, ' '), "remedy: " + f.remedy, kIndent, width);
  }
  return out;
}

Finding::Verdict worst_of(const Findings& findings) {
  Finding::Verdict worst = Finding::Verdict::ok;
  for (const Finding& f : findings) worst = std::max(worst, f.verdict);
  return worst;
}

}  // namespace ringsmith::apps
