// This process and what the system gives it: names for messages, memory, open files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/units.hpp"

namespace ringsmith {

[[nodiscard]] std::string host_name();
[[nodiscard]] std::string process_place();  // "pid 4711 on host-a"

// Raises the limit on open files to `files`, or as far as the hard limit allows, if it is lower;
// never lowers it. What it is then.
std::uint64_t allow_open_files(std::uint64_t files);

// What the kernel says about the error number. For too many open files: how many are allowed, and
// the remedy.
[[nodiscard]] std::string reason_of(int error);

// The most physical memory that was ever resident (VmHWM). Error if /proc cannot be read.
[[nodiscard]] Bytes peak_resident();
// What is resident now (VmRSS).
[[nodiscard]] Bytes resident();
// Addresses that are in use, whether memory is behind them or not (VmSize), and how many there may
// be (RLIMIT_AS, ulimit -v); nothing: as many as there are.
[[nodiscard]] Bytes address_space();
[[nodiscard]] std::optional<Bytes> address_space_limit();

}  // namespace ringsmith
