// Reads a command line: help on request, one line and exit code 6 for everything that is wrong.
#pragma once

#include <cstddef>
#include <string>

namespace CLI {
class App;
}

namespace ringsmith::apps {

// Who prints: all ranks of a job see the same arguments, so rank 0 speaks for them, and the others
// end quietly with the same exit code.
enum class Speaker { first_rank, everybody };

// False if --help was asked for and has been printed. UsageError in one line if the arguments are
// wrong.
[[nodiscard]] bool parse_command_line(CLI::App& app, int argc, const char* const* argv,
                                      Speaker speaker = Speaker::first_rank);

// "64", "1K", "4M", "1G" (powers of two) in bytes. UsageError otherwise; option is named in it.
[[nodiscard]] std::size_t parse_size(const std::string& option, const std::string& text);

// Columns of the terminal that standard output goes to; fallback without one.
[[nodiscard]] std::size_t terminal_width(std::size_t fallback);

}  // namespace ringsmith::apps
