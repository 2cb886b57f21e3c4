// What a signal handler finds in the registers that were saved for it: the one place of the
// emulator, beside rights.cpp, that knows processors by name.
#pragma once

#include <optional>
#include <ucontext.h>

namespace vgpu {

// The instruction that was interrupted.
[[nodiscard]] const void* code_at(const ucontext_t& at);

// Of a page fault: was it a write? Nothing if the system does not tell, as QEMU does not where it
// emulates programs for arm64.
[[nodiscard]] std::optional<bool> was_write(const ucontext_t& at);

}  // namespace vgpu
