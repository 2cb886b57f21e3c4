// How the ranks of a program are started and find each other: the options --bootstrap and
// --transport, and what --help says about them. The same for all programs.
#pragma once

#include <string>

namespace CLI {
class Option;
class App;
}  // namespace CLI

namespace ringsmith::apps {

// Adds --bootstrap; `name` holds its default and then its value, for comm::parse_bootstrap().
CLI::Option* add_bootstrap_option(CLI::App& app, std::string& name);
// Adds --transport and --interface, for comm::parse_transport() and GroupOptions::interface.
void add_transport_options(CLI::App& app, std::string& transport, std::string& interface,
                           int& sockets, std::string group = "");
// Adds --ranks-per-node, for GroupOptions::ranks_per_node.
void add_nodes_option(CLI::App& app, int& ranks_per_node, std::string group = "");
// Adds --flight-dir, for GroupOptions::flight_folder; `otherwise` says where the files go without
// it.
void add_flight_option(CLI::App& app, std::string& folder, const std::string& otherwise,
                       std::string group = "");

// Paragraphs for the footer of --help.
[[nodiscard]] std::string how_to_start();
[[nodiscard]] std::string starting_variables();
[[nodiscard]] std::string device_variables();

}  // namespace ringsmith::apps
