// How much address space a rank's segment takes. A segment is sparse, and reserves as much as the
// machine has memory; but every rank of a host maps those of all others, and where addresses are
// limited (ulimit -v, RLIMIT_AS) reserving is what fails. There, ranks share what is left.
#pragma once

#include <string>

#include "runtime/base/units.hpp"

namespace ringsmith::comm {

// For communication memory, beside `fixed` bytes of the segment, on each of so many ranks.
// CommError with the limit, the need and the remedy if the limit leaves too little for a group.
[[nodiscard]] Bytes communication_space(Bytes fixed, int ranks);

// For errors: what limits this process's addresses, and the remedy; empty if nothing does.
[[nodiscard]] std::string address_limit_advice();

}  // namespace ringsmith::comm
