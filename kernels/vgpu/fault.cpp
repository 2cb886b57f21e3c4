#include "kernels/vgpu/fault.hpp"

#include <optional>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/vgpu/block.hpp"
#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/host_memory.hpp"
#include "kernels/vgpu/imports.hpp"
#include "kernels/vgpu/queue.hpp"
#include "kernels/vgpu/registers.hpp"
#include "kernels/vgpu/report.hpp"
#include "kernels/vgpu/rights.hpp"

namespace vgpu {

namespace {

constexpr std::size_t kStackBytes = 256 << 10;
struct sigaction before_segv, before_fpe;

// Who did it: "kernel scale in stream 1 of device 0, block (0,0,0), thread (3,0,0), at
// scale.cu:12".
std::string culprit(const std::string& line) {
  std::string out = active_runner != nullptr       ? active_runner->describe_self()
                    : current_operation != nullptr ? *current_operation
                                                   : "the host";
  return line.empty() ? out : out + ", at " + line;
}

// What is wrong with the access; "" if it has nothing to do with the emulator.
std::string diagnose(const void* address, bool no_rights) {
  const Device* owner = Device::owner(address);
  const auto import = Imports::get().find(address);
  const bool in_kernel = active_runner != nullptr;
  if (owner != nullptr || import) {
    const int device = import ? import->device : owner->index();
    if (no_rights && in_kernel)
      return "device " + std::to_string(active_runner->device()) + " has no access to device " +
             std::to_string(device) + ": cudaDeviceEnablePeerAccess was not called";
    if (!in_kernel && !in_copy) return "host access to device memory: copy it to the host first";
    if (import)
      return "out of bounds: an IPC handle names the base of a block, and nothing begins "
             "there (was the offset ignored?)";
    return owner->memory().was_freed(address) ? "use after free" : "out of bounds";
  }
  if (const auto closed = Imports::get().find_closed(address))
    return "use after cudaIpcCloseMemHandle: the block of " + std::to_string(*closed) +
           " bytes that began here was closed";
  if (!in_kernel) return in_copy ? "out of bounds: a copy runs over the end of host memory" : "";
  if (active_runner->beyond_dynamic_shared(address))
    return "out of bounds: past the end of dynamic shared memory";
  if (active_runner->in_stack_guard(address))
    return "a thread has used more than its 64 KiB of stack";
  if (PinnedMemory::get().ends_before(address))
    return "out of bounds: past the end of pinned memory";
  return "illegal address";
}

// One report is enough; its writer ends the process.
void take_the_last_word() {
  while (!begin_last_words()) ::pause();
}

[[noreturn]] void stop(const std::string& what, const ucontext_t& at) {
  take_the_last_word();
  fatal(what + "\n  by " + culprit(describe_code(code_at(at))));
}

[[noreturn]] void stop(const std::string& what, const void* address, const ucontext_t& at) {
  take_the_last_word();
  const std::optional<bool> wrote = was_write(at);
  const char* const access = !wrote ? "access to " : *wrote ? "write to " : "read from ";
  fatal(what + "\n  " + access + describe_address(address) + "\n  by " +
        culprit(describe_code(code_at(at))));
}

void handle(int signal, siginfo_t* info, void* context) {
  const auto& at = *static_cast<const ucontext_t*>(context);
  const bool in_kernel = active_runner != nullptr;
  if (signal == SIGFPE && in_kernel)
    stop("an integer division by zero, or of the smallest number by -1", at);
  // The processor tells the address of a page that faults, but not of a misaligned operand.
  if (signal == SIGSEGV && in_kernel && info->si_code == SI_KERNEL)
    stop("misaligned address: a vector is read or written at no multiple of its size", at);
  if (signal == SIGSEGV) {
    const bool no_rights = wanted_key(info->si_addr, info->si_code);
    if (const auto what = diagnose(info->si_addr, no_rights); !what.empty())
      stop(what, info->si_addr, at);
  }
  // The instruction is repeated, and is somebody else's.
  ::sigaction(signal, signal == SIGFPE ? &before_fpe : &before_segv, nullptr);
}

}  // namespace

void stop_at(const std::string& line, const std::string& what) {
  take_the_last_word();
  fatal(what + "\n  by " + culprit(line));
}

#ifdef VGPU_TSAN
// The handler allocates, but never returns to what it interrupted.
extern "C" const char* __tsan_default_options() { return "report_signal_unsafe=0"; }
#endif

void install_fault_handler() {
  (void)PinnedMemory::get();  // made here, not in a signal handler
  (void)Imports::get();
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigaction(SIGSEGV, &action, &before_segv);
  ::sigaction(SIGFPE, &action, &before_fpe);
}

FaultStack::FaultStack() {
  stack_ = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack_ == MAP_FAILED) fatal("no memory for a signal stack");
  const stack_t stack{stack_, 0, kStackBytes};
  ::sigaltstack(&stack, nullptr);
}

FaultStack::~FaultStack() {
  const stack_t none{nullptr, SS_DISABLE, 0};
  ::sigaltstack(&none, nullptr);
  ::munmap(stack_, kStackBytes);
}

}  // namespace vgpu
