#include "labs/apps/common/command_line.hpp"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <vector>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/text.hpp"
#include "runtime/comm/bootstrap/place.hpp"

namespace ringsmith::apps {

namespace {

constexpr std::size_t kColumn = 26;  // where meanings begin

class PlainHelp : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string left = "  " + make_option_name(option, is_positional);
    // "INT:POSITIVE" -> "INT"
    const std::string type = option->get_type_name();
    if (option->get_items_expected_max() > 0 && !type.empty())
      left += " " + type.substr(0, type.find_first_of(":{"));
    std::string meaning = option->get_description();
    const std::string value = option->get_default_str();
    if (!value.empty() && value != "\"\"" && value != "[]") meaning += " [" + value + "]";
    left += left.size() + 2 > kColumn ? "\n" + std::string(kColumn, ' ')
                                      : std::string(kColumn - left.size(), ' ');
    return left + wrapped(meaning, kColumn) + "\n";
  }

  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    std::string out = group + ":\n";
    for (const CLI::Option* option : options) out += make_option(option, is_positional);
    return out;
  }

  std::string make_usage(const CLI::App* app, std::string name) const override {
    return CLI::Formatter::make_usage(app, name) + "\n";
  }

  std::string make_description(const CLI::App* app) const override {
    return wrapped(app->get_description(), 0) + "\n\n";
  }
};

std::optional<double> read_real(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value)) return {};
  return value;
}

std::optional<long long> read_whole(const std::string& text) {
  const std::size_t digits = text.rfind('-', 0) == 0 ? 1 : 0;
  if (text.size() > digits + 1 && text[digits] == '0') return {};  // octal, or hexadecimal?
  long long value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return {};
  return value;
}

// read: gives a number, or nothing; what: "a number above 0".
template <class Read, class Fits>
CLI::Validator must_be(Read read, Fits fits, const std::string& what) {
  return CLI::Validator(
      [=](std::string& text) {
        const auto value = read(text);
        return value && fits(*value) ? std::string() : fmt::format("'{}' is not {}", text, what);
      },
      "");
}

}  // namespace

bool parse_command_line(CLI::App& app, int argc, const char* const* argv, Speaker speaker) {
  const bool speaks = speaker == Speaker::everybody || comm::rank_hint() == 0;
  app.formatter(std::make_shared<PlainHelp>());
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

CLI::Validator whole(long long least, long long most) {
  return must_be(
      read_whole, [=](long long v) { return v >= least && v <= most; },
      fmt::format("a whole number from {} to {}", least, most));
}

CLI::Validator real(double least, double most) {
  return must_be(
      read_real, [=](double v) { return v >= least && v <= most; },
      fmt::format("a number from {} to {}", least, most));
}

CLI::Validator above_zero(double most) {
  return must_be(
      read_real, [=](double v) { return v > 0 && v <= most; },
      fmt::format("a number above 0, at most {}", most));
}

}  // namespace ringsmith::apps
