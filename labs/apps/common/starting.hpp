// How the ranks of a program are started and find each other: the option --bootstrap, and what
// --help says about it. The same for all programs.
#pragma once

#include <string>

namespace CLI {
class Option;
class App;
}  // namespace CLI

namespace ringsmith::apps {

// Adds --bootstrap; `name` holds its default and then its value, for comm::parse_bootstrap().
CLI::Option* add_bootstrap_option(CLI::App& app, std::string& name);

// Paragraphs for the footer of --help.
[[nodiscard]] std::string how_to_start();
[[nodiscard]] std::string starting_variables();
[[nodiscard]] std::string device_variables();

}  // namespace ringsmith::apps
