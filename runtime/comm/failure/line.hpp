// A line for standard error that can be made and printed in a signal handler: no allocation, no
// locks, no stdio. What does not fit is cut.
#pragma once

#include <cstddef>
#include <unistd.h>

#include "runtime/comm/transport/control.hpp"

namespace ringsmith::comm {

class Line {
 public:
  Line& operator<<(const char* text) {
    while (*text != '\0' && used_ < sizeof bytes_) bytes_[used_++] = *text++;
    return *this;
  }
  Line& operator<<(long number) {
    char digits[24];
    char* p = digits + sizeof digits - 1;
    *p = '\0';
    do *--p = static_cast<char>('0' + number % 10);
    while ((number /= 10) > 0);
    return *this << p;
  }
  void print() const {
    if (write(STDERR_FILENO, bytes_, used_) < 0) return;  // nobody is left to be told
  }

 private:
  char bytes_[kFailureText + 256];
  std::size_t used_ = 0;
};

}  // namespace ringsmith::comm
