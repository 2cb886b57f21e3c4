// Reads a command line with CLI11: help on request, one line and exit code 6 for all that is wrong.
//
// Help has two columns, words wrapped, defaults in brackets, and no line wider than a page: CLI11's
// own form puts validators and defaults between option and meaning, and never wraps. Its checks of
// numbers let NaN pass, read 010 as eight, and name their bounds with 300 digits: here are others.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>

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

constexpr long long kMostWhole = 2'147'483'647;  // what an int holds
constexpr double kMostSeconds = 1e6;             // 11 days: what is waited for longer never comes

// A whole number in decimal digits; a number; one above 0; the seconds of a deadline, whose clocks
// count in milliseconds.
[[nodiscard]] CLI::Validator whole(long long least, long long most = kMostWhole);
[[nodiscard]] CLI::Validator real(double least, double most);
[[nodiscard]] CLI::Validator above_zero(double most);
[[nodiscard]] inline CLI::Validator seconds() { return real(0.001, kMostSeconds); }

}  // namespace ringsmith::apps
