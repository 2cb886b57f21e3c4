#include "runtime/comm/transport/shm/reserve.hpp"

#include <algorithm>
#include <unistd.h>

#include "runtime/base/error.hpp"
#include "runtime/base/process.hpp"

namespace ringsmith::comm {

namespace {

constexpr Bytes kLeast = MiB(64), kLeastUnlimited = MiB(1024), kMost = MiB(256 << 10);

std::string mib(Bytes bytes) { return std::to_string(bytes.value >> 20) + " MiB"; }

Bytes physical_memory() {
  return Bytes(static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
               static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
}

}  // namespace

Bytes communication_space(Bytes fixed, int ranks) {
  const Bytes wanted = std::clamp(physical_memory(), kLeastUnlimited, kMost);
  const auto limit = address_space_limit();
  if (!limit) return wanted;
  const Bytes left = *limit - std::min(*limit, address_space());
  const auto each = [&](std::size_t space) { return space / static_cast<std::size_t>(ranks); };
  // Half of it: there will be other groups, tensors and threads.
  const Bytes half(each(left.value / 2));
  if (half.value >= fixed.value + kLeast.value) return std::min(wanted, half - fixed);
  if (each(left.value) >= fixed.value + kLeast.value) return kLeast;
  const Bytes need((fixed.value + kLeast.value) * static_cast<std::size_t>(ranks));
  throw CommError("shared memory of " + std::to_string(ranks) + " ranks needs " + mib(need) +
                  " of address space" + address_limit_advice());
}

std::string address_limit_advice() {
  const auto limit = address_space_limit();
  if (!limit) return {};
  return ": this process is limited to " + mib(*limit) + " (ulimit -v " +
         std::to_string(limit->value >> 10) + "), of which " + mib(address_space()) +
         " are in use; start the ranks with a higher limit, or none (ulimit -v unlimited)";
}

}  // namespace ringsmith::comm
