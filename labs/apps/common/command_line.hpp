// A program's command line: its options, --help and --version, and one line with exit code 6 for
// all that is wrong.
//
// CLI11 does the parsing, behind command_line.cpp: its header has 10,000 lines, and all programs
// would compile them. Of its manner this changes: help has two columns, words wrapped, defaults in
// brackets, and no line wider than 80 columns; numbers are decimal (CLI11 reads 010 as eight, and
// lets NaN pass), and a bound is named as a person would write it; an unknown option is answered
// with the nearest one that there is.
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

// Who prints: all ranks of a job see the same arguments, so rank 0 speaks first. The launcher then
// ends the others, with the same exit code; a rank that nobody ends says it too (QuietStop).
enum class Speaker { first_rank, everybody };

// Empty if the text will do, else what is wrong with it: "'x' is not a whole number from 1 to 9".
using Check = std::function<std::string(const std::string& text)>;

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option* check(Check check);
  Option* required();
  Option* excludes(Option* other);
  Option* environment(const std::string& variable);  // that gives the value without the option
  // The default as --help shows it; empty: not at all.
  Option* default_text(const std::string& text);
  // Of a list: at most this many values, which may also be separated by commas.
  Option* separated_by_commas(int most);
  [[nodiscard]] bool given() const;
  [[nodiscard]] std::string name() const;  // "--steps"

 private:
  CLI::Option* option_;
};

class CommandLine {
 public:
  // --help and --version are there from the beginning.
  CommandLine(const std::string& description, const std::string& program);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // names: "-n,--steps", or "folder" for a word without an option. What value holds is the default.
  // The last one of several counts, unless it is a vector, which takes all. T is std::string, a
  // number, or a vector of them.
  template <class T>
  Option* add_option(const std::string& names, T& value, const std::string& meaning);
  Option* add_flag(const std::string& names, bool& value, const std::string& meaning);
  // An option that is in no help, and that is answered with why it is not there.
  void refuse(const std::string& names, const std::string& why);

  void group(const std::string& heading);  // of the options that are added from here on
  void footer(const std::string& text);
  // The first word that is no option, and all that follow it, are for the caller: rest().
  void leave_the_rest();

  // For the ranks of a job to compare: parse() fills `settings` with the program's name and the
  // final value of every option except the options in may_differ, whose help says so. The value of
  // an option without a default is "not given" unless it was given.
  void compare(comm::Settings& settings, std::span<const char* const> may_differ);

  // False if --help or --version was asked for and has been printed. UsageError in one line if the
  // arguments are wrong.
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

// "64", "1K", "4M", "1G" (powers of two) in bytes. UsageError otherwise; option is named in it.
[[nodiscard]] std::size_t parse_size(const std::string& option, const std::string& text);

// The number that the whole text is, in decimal digits; nothing for NaN, infinities, 0x10 and 010.
[[nodiscard]] std::optional<double> read_real(const std::string& text);
[[nodiscard]] std::optional<long long> read_whole(const std::string& text);

constexpr long long kMostWhole = 2'147'483'647;  // what an int holds
constexpr double kMostSeconds = 1e6;             // 11 days: what is waited for longer never comes

// A whole number in decimal digits; a number; one above 0; the seconds of a deadline, whose clocks
// count in milliseconds.
[[nodiscard]] Check whole(long long least, long long most = kMostWhole);
[[nodiscard]] Check real(double least, double most);
[[nodiscard]] Check above_zero(double most);
[[nodiscard]] inline Check seconds() { return real(0.001, kMostSeconds); }
[[nodiscard]] Check one_of(std::vector<std::string> choices);
[[nodiscard]] Check existing_path();
[[nodiscard]] Check existing_folder();

}  // namespace ringsmith::apps
