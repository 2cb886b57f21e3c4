// The page of guards: the smallest piece of memory that can be made to fault. 4 KiB on x86, 4, 16
// or 64 KiB on arm64; VGPU_PAGE_KB simulates a larger one.
#pragma once

#include <cstddef>

#include "kernels/vgpu/settings.hpp"

namespace vgpu {

inline std::size_t guard_page() { return Settings::get().guard_page; }

}  // namespace vgpu
