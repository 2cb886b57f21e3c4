#include "labs/apps/common/command_line.hpp"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sys/ioctl.h>
#include <unistd.h>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/help.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/bootstrap/place.hpp"

namespace ringsmith::apps {

bool parse_command_line(CLI::App& app, int argc, const char* const* argv, Speaker speaker) {
  const bool speaks = speaker == Speaker::everybody || comm::rank_hint() == 0;
  use_plain_help(app);
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::CallForHelp&) {
    if (speaks) std::fputs(app.help().c_str(), stdout);
    return false;
  } catch (const CLI::ParseError& e) {
    if (!speaks) throw QuietStop(ExitCode::usage);
    std::string line = e.what();
    for (char& c : line)
      if (c == '\n') c = ' ';
    line.erase(line.find_last_not_of(' ') + 1);
    throw UsageError(line + "; " + app.get_name() + " --help lists the options");
  }
}

std::size_t parse_size(const std::string& option, const std::string& text) {
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  std::string suffix = end;
  if (suffix == "K" || suffix == "k") value *= 1024.0;
  if (suffix == "M" || suffix == "m") value *= 1024.0 * 1024;
  if (suffix == "G" || suffix == "g") value *= 1024.0 * 1024 * 1024;
  const bool known = suffix.empty() || (suffix.size() == 1 &&
                                        std::string("KkMmGg").find(suffix) != std::string::npos);
  require(end != text.c_str() && known && std::isfinite(value) && value >= 0 && value < 1e15,
          option + " '" + text + "' is not a size: write bytes, or 1K, 4M, 1G");
  return static_cast<std::size_t>(value);
}

std::size_t terminal_width(std::size_t fallback) {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return fallback;
}

}  // namespace ringsmith::apps
