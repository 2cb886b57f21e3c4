// The numbers on the command lines of the lessons' programs.
//
// A wrong number ends the program with exit code 6 and one line: the argument, the numbers that are
// possible, and the order of the arguments. atoi() would make 0 of "x" and 3 of "3.9", and the
// program would print results for a number that was not given.
#pragma once

#include <cstdlib>
#include <fmt/format.h>
#include <string>
#include <utility>

#include "labs/apps/common/command_line.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::lessons {

class Arguments {
 public:
  // usage: the source's name, and its arguments in order, as in "waits [BUCKETS]". More than
  // `most` arguments are refused.
  Arguments(int argc, char** argv, std::string usage, int most)
      : argc_(argc), argv_(argv), usage_(std::move(usage)) {
    if (argc - 1 > most) refuse(most + 1, "is one too many");
  }

  // Returns the argument, or `otherwise` if there are fewer.
  [[nodiscard]] long whole(int at, long otherwise, long least, long most) const {
    if (at >= argc_) return otherwise;
    const auto number = apps::read_whole(argv_[at]);
    if (!number || *number < least || *number > most)
      refuse(at, fmt::format("is not a whole number from {} to {}", least, most));
    return static_cast<long>(*number);
  }
  [[nodiscard]] double real(int at, double otherwise, double least, double most) const {
    if (at >= argc_) return otherwise;
    const auto number = apps::read_real(argv_[at]);
    if (!number || !(*number >= least && *number <= most))
      refuse(at, fmt::format("is not a number from {} to {}", least, most));
    return *number;
  }
  // True if the argument is `second`, false if it is `first` or if there are fewer arguments.
  [[nodiscard]] bool second(int at, const std::string& first, const std::string& second) const {
    if (at >= argc_) return false;
    if (argv_[at] != first && argv_[at] != second)
      refuse(at, "is neither '" + first + "' nor '" + second + "'");
    return argv_[at] == second;
  }

 private:
  [[noreturn]] void refuse(int at, const std::string& why) const {
    const std::string path = argv_[0], name = path.substr(path.rfind('/') + 1);
    fmt::print(stderr, "{}: error: argument {}, '{}', {}; usage: {}{}\n", name, at,
               printable(argv_[at]), why, name, usage_.substr(usage_.find(' ')));
    std::exit(static_cast<int>(ExitCode::usage));
  }

  int argc_;
  char** argv_;
  std::string usage_;
};

}  // namespace ringsmith::lessons
