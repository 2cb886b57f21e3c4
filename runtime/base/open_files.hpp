// The limit on a process's open files: raising it as far as one may, and an error that names it.
#pragma once

#include <cstdint>
#include <string>

namespace ringsmith {

// Raises the limit to `files`, or as far as the hard limit allows, if it is lower; never lowers it.
// What it is then.
std::uint64_t allow_open_files(std::uint64_t files);

// What the kernel says about the error number. For too many open files: how many are allowed, and
// the remedy.
[[nodiscard]] std::string reason_of(int error);

}  // namespace ringsmith
