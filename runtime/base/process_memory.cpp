#include "runtime/base/process_memory.hpp"

#include <fstream>
#include <string>

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

}  // namespace ringsmith
