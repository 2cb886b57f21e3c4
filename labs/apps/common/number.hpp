// Checks of the numbers on a command line. CLI11's own let NaN pass, read 010 as eight, and name
// their bounds with 300 digits.
#pragma once

#include <CLI/CLI.hpp>

namespace ringsmith::apps {

constexpr long long kMostWhole = 2'147'483'647;  // what an int holds
constexpr double kMostSeconds = 1e6;             // 11 days: what is waited for longer never comes

// A whole number in decimal digits.
[[nodiscard]] CLI::Validator whole(long long least, long long most = kMostWhole);

[[nodiscard]] CLI::Validator real(double least, double most);

[[nodiscard]] CLI::Validator above_zero(double most);

// Of a deadline: clocks count in milliseconds.
[[nodiscard]] inline CLI::Validator seconds() { return real(0.001, kMostSeconds); }

}  // namespace ringsmith::apps
