#pragma once

#include <string>
#include <vector>

namespace kit {

struct Wait {
  int rank = 0;
  std::string what;        // "all_reduce #0, step 1: recv of 4 elements from rank 2"
  std::vector<int> peers;  // ranks it waits for; empty: none, or unknown
  bool done = false;       // the rank has returned
};

[[nodiscard]] std::string describe(const std::vector<Wait>& waits);

}  // namespace kit
