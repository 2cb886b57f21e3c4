// What happens at an access to memory that is not there, or not for whom accesses it: the kernel,
// the thread, the line and the allocation are named, and the process ends.
#pragma once

#include <optional>
#include <string>
#include <ucontext.h>

namespace vgpu {

// For the whole process, once; a handler that was there before gets what is not ours.
void install_fault_handler();

// The same end for what a kernel's own code has noticed (the checks of fault.cpp), at "file:line".
[[noreturn]] void stop_at(const std::string& line, const std::string& what);

// A stack for the handler on this OS thread: a fiber's own may be used up.
class FaultStack {
 public:
  FaultStack();
  ~FaultStack();
  FaultStack(const FaultStack&) = delete;
  FaultStack& operator=(const FaultStack&) = delete;

 private:
  void* stack_;
};

// What a signal handler finds in the registers that were saved for it: the one place of the
// emulator, beside rights.cpp, that knows processors by name.
//
// The instruction that was interrupted.
[[nodiscard]] const void* code_at(const ucontext_t& at);

// Of a page fault: was it a write? Nothing if the system does not tell, as QEMU does not where it
// emulates programs for arm64.
[[nodiscard]] std::optional<bool> was_write(const ucontext_t& at);

}  // namespace vgpu
