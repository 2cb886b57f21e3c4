// Names for messages: which host, which process.
#pragma once

#include <string>

namespace ringsmith {

[[nodiscard]] std::string host_name();
[[nodiscard]] std::string process_place();  // "pid 4711 on host-a"

}  // namespace ringsmith
