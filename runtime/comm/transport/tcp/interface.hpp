// Which address of this host the other hosts should use.
#pragma once

#include <string>

namespace ringsmith::comm::tcp {

// The number of an interface's address ("eth0"), or `where` itself if there is no such interface.
[[nodiscard]] std::string address_of(const std::string& where);

// The address from which this host would speak to the job's master, if the environment names one;
// else that of the first interface that is up and not the loopback; else the loopback's.
[[nodiscard]] std::string outward_address();

}  // namespace ringsmith::comm::tcp
