// What the kernel says about this process's memory.
#pragma once

#include <optional>

#include "runtime/base/units.hpp"

namespace ringsmith {

// The most physical memory that was ever resident (VmHWM). Error if /proc cannot be read.
[[nodiscard]] Bytes peak_resident();
// What is resident now (VmRSS).
[[nodiscard]] Bytes resident();
// Addresses that are in use, whether memory is behind them or not (VmSize), and how many there may
// be (RLIMIT_AS, ulimit -v); nothing: as many as there are.
[[nodiscard]] Bytes address_space();
[[nodiscard]] std::optional<Bytes> address_space_limit();

}  // namespace ringsmith
