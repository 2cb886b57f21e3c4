// Where in the program a call was made: file and line, for the error that names the call.
//
// Buffers carry it: they are made in the argument list of a collective, so that the line where one
// is made is the line of the call, also through groups that only pass calls on. (Not
// std::source_location, which clang 14 does not have.)
#pragma once

namespace ringsmith::comm {

struct Site {
  const char* file = nullptr;  // a string literal
  int line = 0;

  // As a default argument: of whoever calls the function that has it.
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

}  // namespace ringsmith::comm
