// Handles an access to memory that does not exist, or to which the accessing device or host has no
// right: names the kernel, the thread, the line and the allocation, and ends the process.
#pragma once

#include <optional>
#include <string>
#include <ucontext.h>

namespace vgpu {

// For the whole process, once. Faults that are not the emulator's go to the previous handler.
void install_fault_handler();

// The same end for an error that a kernel's own code has found (the checks of fault.cpp).
[[noreturn]] void stop_at(const std::string& line, const std::string& what);

// A stack for the handler on this OS thread, because a fiber's own stack may be exhausted.
class FaultStack {
 public:
  FaultStack();
  ~FaultStack();
  FaultStack(const FaultStack&) = delete;
  FaultStack& operator=(const FaultStack&) = delete;

 private:
  void* stack_;
};

// The information in the registers that were saved for a signal handler: apart from rights.cpp, the
// only code of the emulator that depends on the processor.
//
// The instruction that was interrupted.
[[nodiscard]] const void* code_at(const ucontext_t& at);

// True if a page fault was a write. Nothing if the system does not tell, as QEMU does not when it
// emulates programs for arm64.
[[nodiscard]] std::optional<bool> was_write(const ucontext_t& at);

}  // namespace vgpu
