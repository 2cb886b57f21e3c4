// The transport of tests; some CTest entries set RINGSMITH_TEST_TRANSPORT=tcp.
#pragma once

#include <cstdlib>

#include "runtime/comm/process_group.hpp"

namespace ringsmith::test {

inline comm::Transport test_transport() {
  const char* const name = std::getenv("RINGSMITH_TEST_TRANSPORT");
  return name == nullptr ? comm::Transport::automatic : comm::parse_transport(name);
}

}  // namespace ringsmith::test
