// What happens at an access to memory that is not there, or not for whom accesses it: the kernel,
// the thread, the line and the allocation are named, and the process ends.
#pragma once

#include <string>

namespace vgpu {

// For the whole process, once; a handler that was there before gets what is not ours.
void install_fault_handler();

// The same end for what a kernel's own code has noticed (checks.cpp), at "file:line".
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

}  // namespace vgpu
