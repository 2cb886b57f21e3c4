#include "runtime/base/host_name.hpp"

#include <array>
#include <unistd.h>

namespace ringsmith {

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string process_place() { return "pid " + std::to_string(getpid()) + " on " + host_name(); }

}  // namespace ringsmith
