#include "runtime/base/process_memory.hpp"

#include <fstream>
#include <string>
#include <sys/resource.h>

#include "runtime/base/error.hpp"

namespace ringsmith {

namespace {

Bytes status_field(const std::string& key) {
  std::ifstream in("/proc/self/status");
  std::string word;
  std::size_t kib = 0;
  while (in >> word)
    if (word == key && in >> kib) return KiB(kib);  // proc(5): the unit is always kB, meaning KiB
  throw Error("cannot read " + key + " from /proc/self/status");
}

}  // namespace

Bytes peak_resident() { return status_field("VmHWM:"); }
Bytes resident() { return status_field("VmRSS:"); }
Bytes address_space() { return status_field("VmSize:"); }

std::optional<Bytes> address_space_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return Bytes(limit.rlim_cur);
}

}  // namespace ringsmith
