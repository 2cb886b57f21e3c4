// What the kernel says about this process's memory.
#pragma once

#include "runtime/base/units.hpp"

namespace ringsmith {

// The most physical memory that was ever resident (VmHWM). Error if /proc cannot be read.
[[nodiscard]] Bytes peak_resident();
// What is resident now (VmRSS).
[[nodiscard]] Bytes resident();

}  // namespace ringsmith
