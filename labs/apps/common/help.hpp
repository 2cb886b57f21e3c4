// The text of --help: two columns, words wrapped, defaults in brackets, and no line wider than a
// page. CLI11's own form puts validators and defaults between option and meaning, and never wraps.
#pragma once

#include <cstddef>
#include <string>

namespace CLI {
class App;
}

namespace ringsmith::apps {

// Breaks at blanks; every line after the first is indented.
[[nodiscard]] std::string wrapped(const std::string& text, std::size_t indent);

void use_plain_help(CLI::App& app);

}  // namespace ringsmith::apps
