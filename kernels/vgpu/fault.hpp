// What happens at an access to memory that is not there, or not for whom accesses it: the kernel,
// the thread, the line and the allocation are named, and the process ends.
#pragma once

namespace vgpu {

// For the whole process, once; a handler that was there before gets what is not ours.
void install_fault_handler();

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
