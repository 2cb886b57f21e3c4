// What the kernel says about the processor.
#pragma once

#include <string>

namespace ringsmith::apps {

// The text of /proc/cpuinfo.
[[nodiscard]] std::string processor_text();

// The name in such a text: x86's "model name"; arm64 has none, but who made the first core and
// which part it is ("Arm Neoverse-N1", or the numbers). "unknown CPU" without either.
[[nodiscard]] std::string processor_name(const std::string& cpuinfo);

// How many processors this process may run on.
[[nodiscard]] int allowed_cores();

// Has the first processor this flag ("ospke")?
[[nodiscard]] bool has_processor_flag(const std::string& cpuinfo, const std::string& flag);

}  // namespace ringsmith::apps
