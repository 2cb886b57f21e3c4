#include "labs/apps/common/help.hpp"

#include <CLI/CLI.hpp>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace ringsmith::apps {

namespace {

constexpr std::size_t kWidth = 98;
constexpr std::size_t kColumn = 26;  // where meanings begin

}  // namespace

std::string wrapped(const std::string& text, std::size_t indent) {
  std::istringstream words(text);
  std::string out, word;
  std::size_t at = indent;
  while (words >> word) {
    if (at > indent && at + 1 + word.size() > kWidth) {
      out += '\n' + std::string(indent, ' ');
      at = indent;
    }
    if (at > indent) {
      out += ' ';
      ++at;
    }
    out += word;
    at += word.size();
  }
  return out;
}

namespace {

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

}  // namespace

void use_plain_help(CLI::App& app) { app.formatter(std::make_shared<PlainHelp>()); }

}  // namespace ringsmith::apps
