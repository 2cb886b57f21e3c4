// The parts of examine_machine() that have files of their own.
#pragma once

#include <filesystem>

#include "labs/apps/common/findings.hpp"

namespace ringsmith::apps {

// Without white space at its end; empty if there is no such file.
[[nodiscard]] std::string first_line(const std::filesystem::path& path);

// The loopback interface, and those that lead to other hosts.
void examine_networks(Findings& out);
// The processor, and what the emulator can see with it.
void examine_processor(Findings& out);
// How many addresses a process may reserve: RLIMIT_AS, in bytes (RLIM_INFINITY: any number).
[[nodiscard]] Finding judge_address_limit(std::uint64_t bytes);

}  // namespace ringsmith::apps
