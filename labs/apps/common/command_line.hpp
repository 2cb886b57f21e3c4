// Parses a program's command line. Every mistake is reported in one line, and the program exits
// with code 6.
//
// CLI11 does the parsing; only command_line.cpp includes its 10,000 lines. This class differs from
// CLI11 in three ways. The help has two columns of wrapped text. Messages describe a bound in words
// and propose the nearest known option. Numbers are decimal; CLI11 reads 010 as eight, and accepts
// NaN.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/types/settings.hpp"

namespace CLI {
class Option;
}

namespace ringsmith::apps {

// Which ranks print an error. All ranks see the same arguments, so only rank 0 prints the error,
// and the launcher terminates the other ranks. Without a launcher, the other ranks print the error
// as well (QuietStop).
enum class Speaker { first_rank, everybody };

// Returns an empty string if the argument is valid, or else the error: "'x' is not a whole number
// from 1 to 9".
using Check = std::function<std::string(const std::string& text)>;

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option* check(Check check);
  Option* required();
  Option* excludes(Option* other);
  Option* environment(const std::string& variable);
  // Sets the default that --help shows; an empty text shows none.
  Option* default_text(const std::string& text);
  // For a list: takes at most this many values, which may also be separated by commas.
  Option* separated_by_commas(int most);
  [[nodiscard]] bool given() const;
  [[nodiscard]] std::string name() const;  // "--steps"

 private:
  CLI::Option* option_;
};

class CommandLine {
 public:
  CommandLine(const std::string& description, const std::string& program);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // names: "-n,--steps", or "folder" for a positional argument. The initial value is the default.
  // If an option is repeated, its last value wins; a vector takes all values. T is std::string, a
  // number, or a vector of these.
  template <class T>
  Option* add_option(const std::string& names, T& value, const std::string& meaning);
  Option* add_flag(const std::string& names, bool& value, const std::string& meaning);
  // parse() rejects these options with `why` in the message; --help does not show them.
  void refuse(const std::string& names, const std::string& why);

  void group(const std::string& heading);
  void footer(const std::string& text);
  // Stops parsing at the first word that is not an option; rest() begins with it.
  void leave_the_rest();

  // Makes parse() fill `settings` with the program's name and the final value of every option ("not
  // given" if it has neither a value nor a default), so that the ranks can compare them. Leaves out
  // the options in may_differ and says so in their help.
  void compare(comm::Settings& settings, std::span<const char* const> may_differ);

  // Returns false if --help or --version was requested and has been printed. If the arguments are
  // wrong, throws UsageError with a one-line message, or QuietStop on a rank that prints no errors.
  [[nodiscard]] bool parse(int argc, const char* const* argv,
                           Speaker speaker = Speaker::first_rank);

  [[nodiscard]] bool given(const std::string& option) const;
  [[nodiscard]] bool takes_value(const std::string& option) const;
  [[nodiscard]] std::vector<std::string> rest() const;
  // "--stepz: unknown option; did you mean --steps? train_gpt --help lists the options"
  [[nodiscard]] std::string unknown(const std::string& option) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Parses "64", "1K", "4M" or "1G" (powers of two), and returns the number of bytes. Throws
// UsageError naming the option.
[[nodiscard]] std::size_t parse_size(const std::string& option, const std::string& text);

// Parse the whole text as a decimal number. Return nothing for NaN, infinities and 0x10;
// read_whole() returns nothing for 010 either.
[[nodiscard]] std::optional<double> read_real(const std::string& text);
[[nodiscard]] std::optional<long long> read_whole(const std::string& text);

constexpr long long kMostWhole = 2'147'483'647;  // the largest int
constexpr double kMostSeconds = 1e6;             // 11 days; a longer timeout is a mistake

// seconds(): a timeout of at least one millisecond, the resolution of the timeouts.
[[nodiscard]] Check whole(long long least, long long most = kMostWhole);
[[nodiscard]] Check real(double least, double most);
[[nodiscard]] Check above_zero(double most);
[[nodiscard]] inline Check seconds() { return real(0.001, kMostSeconds); }
[[nodiscard]] Check one_of(std::vector<std::string> choices);
[[nodiscard]] Check existing_path();
[[nodiscard]] Check existing_folder();

}  // namespace ringsmith::apps
