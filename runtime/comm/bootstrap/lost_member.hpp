// A member of a job that ended while others still wait for it.
#pragma once

#include <string>

namespace ringsmith::comm {

struct LostMember {
  int index = -1;    // its rank, or its node's number
  std::string text;  // for the error: "rank 2 (pid 4711 on host a) ended before ..."
};

}  // namespace ringsmith::comm
