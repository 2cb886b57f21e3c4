// Handles accesses to memory that does not exist, or to which the device or host has no right.
// Reports the kernel, the thread, the line and the allocation, then ends the process.
#pragma once

#include <optional>
#include <string>
#include <ucontext.h>

namespace vgpu {

// Called once per process. The previous handler gets all faults unrelated to the emulator.
void install_fault_handler();

// Ends the process in the same way, for an error detected by a check in the kernel's code.
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

// The next two functions depend on the processor: they read the registers that were saved for a
// signal handler.
//
// Returns the address of the interrupted instruction.
[[nodiscard]] const void* code_at(const ucontext_t& at);

// True if a page fault was a write. Returns nullopt if the system does not provide the access type,
// e.g. under QEMU emulating arm64.
[[nodiscard]] std::optional<bool> was_write(const ucontext_t& at);

}  // namespace vgpu
