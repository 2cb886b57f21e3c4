// require() whose message is made only when it is needed: checks on the path of every view and
// every allocation must not build strings that nobody reads.
#pragma once

#include "runtime/base/error.hpp"

namespace ringsmith {

template <class Message>
void check(bool condition, const Message& message) {
  if (!condition) throw UsageError(message());
}

}  // namespace ringsmith
