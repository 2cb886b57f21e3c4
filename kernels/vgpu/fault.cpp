#include "kernels/vgpu/fault.hpp"

#include <cstdint>
#include <cstring>
#include <optional>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/vgpu/block.hpp"
#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/ipc.hpp"
#include "kernels/vgpu/memory.hpp"
#include "kernels/vgpu/queue.hpp"
#include "kernels/vgpu/rights.hpp"

namespace vgpu {

namespace {

constexpr std::size_t kStackBytes = 256 << 10;
struct sigaction before_segv, before_fpe;

// The origin of the error: "kernel scale in stream 1 of device 0, block (0,0,0), thread (3,0,0), at
// scale.cu:12".
std::string culprit(const std::string& line) {
  std::string out = active_runner != nullptr       ? active_runner->describe_self()
                    : current_operation != nullptr ? *current_operation
                                                   : "the host";
  return line.empty() ? out : out + ", at " + line;
}

// Returns "" if the access has nothing to do with the emulator.
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
      return "out of bounds: an IPC handle names the base of a block, and no allocation begins "
             "there (was the offset ignored?)";
    return owner->memory().was_freed(address) ? "use after free" : "out of bounds";
  }
  if (const auto closed = Imports::get().find_closed(address))
    return "use after cudaIpcCloseMemHandle: the block of " + std::to_string(*closed) +
           " bytes that began here was closed";
  if (!in_kernel) return in_copy ? "out of bounds: a copy runs past the end of host memory" : "";
  if (active_runner->beyond_dynamic_shared(address))
    return "out of bounds: past the end of dynamic shared memory";
  if (active_runner->in_stack_guard(address))
    return "a thread has used more than its 64 KiB of stack";
  if (PinnedMemory::get().ends_before(address))
    return "out of bounds: past the end of pinned memory";
  return "illegal address";
}

// Only one report is written. Other threads with an error wait until the writing thread ends the
// process.
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
    stop("an integer division by zero, or of the most negative value by -1", at);
  // The processor reports the address of a page that faults, but not of a misaligned operand.
  if (signal == SIGSEGV && in_kernel && info->si_code == SI_KERNEL)
    stop("misaligned address: a vector access is not at a multiple of its size", at);
  if (signal == SIGSEGV) {
    const bool no_rights = wanted_key(info->si_addr, info->si_code);
    if (const auto what = diagnose(info->si_addr, no_rights); !what.empty())
      stop(what, info->si_addr, at);
  }
  // The emulator does not report this fault. The instruction runs again under the old handler.
  ::sigaction(signal, signal == SIGFPE ? &before_fpe : &before_segv, nullptr);
}

}  // namespace

void stop_at(const std::string& line, const std::string& what) {
  take_the_last_word();
  fatal(what + "\n  by " + culprit(line));
}

#ifdef VGPU_TSAN
// A handler that reports an error allocates, but never returns to the code it interrupted.
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

// ---- the compiler's checks ----
//
// On processors that do not trap a misaligned address or an integer division by zero, .cu files are
// compiled with the compiler's checks for both (kernels/cuda/cuda.cmake). The functions below
// replace libubsan's. In a kernel they report the error and end the process. Host code continues as
// it would without the checks.
#ifdef VGPU_CHECKS

namespace vgpu {

namespace {

// Layouts as in compiler-rt's lib/ubsan/ubsan_handlers.h, which g++ follows.
struct Place {
  const char* file;
  std::uint32_t line, column;
};

struct Mismatch {
  Place place;
  const void* type;
  std::uint8_t log_alignment;
  std::uint8_t kind;  // 0: a load, 1: a store, others: e.g. a reference or a member
};

struct Division {
  Place place;
  const void* type;
};

std::string line_of(const Place& place) {
  return std::string(place.file) + ":" + std::to_string(place.line);
}

}  // namespace

}  // namespace vgpu

extern "C" void __ubsan_handle_type_mismatch_v1(const vgpu::Mismatch* found, const void* address) {
  if (vgpu::active_runner == nullptr) return;
  constexpr const char* kAccess[] = {"read from ", "write to "};
  vgpu::stop_at(vgpu::line_of(found->place),
                "misaligned address: not a multiple of " +
                    std::to_string(1U << found->log_alignment) + "\n  " +
                    (found->kind < 2 ? kAccess[found->kind] : "access to ") +
                    vgpu::describe_address(address));
}

extern "C" void __ubsan_handle_divrem_overflow(const vgpu::Division* found, std::uintptr_t,
                                               std::uintptr_t) {
  if (vgpu::active_runner == nullptr) return;
  vgpu::stop_at(vgpu::line_of(found->place), "an integer division by zero");
}

#endif

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "vgpu: define code_at() and was_write() for this processor"
#endif

namespace vgpu {

#if defined(__x86_64__)

const void* code_at(const ucontext_t& at) {
  return reinterpret_cast<const void*>(at.uc_mcontext.gregs[REG_RIP]);  // NOLINT
}

std::optional<bool> was_write(const ucontext_t& at) {
  constexpr greg_t kWrite = 2;  // bit of the page fault's error code
  return (at.uc_mcontext.gregs[REG_ERR] & kWrite) != 0;
}

#elif defined(__aarch64__)

const void* code_at(const ucontext_t& at) {
  return reinterpret_cast<const void*>(at.uc_mcontext.pc);  // NOLINT
}

// Records follow the registers. Each starts with a number and its size, and the last is zero. One
// contains the syndrome of the fault (ESR_EL1), whose bit 6 is 1 for a write.
std::optional<bool> was_write(const ucontext_t& at) {
  const auto& records = at.uc_mcontext.__reserved;
  for (std::size_t offset = 0; offset + sizeof(esr_context) <= sizeof records;) {
    esr_context record;
    std::memcpy(&record, records + offset, sizeof record);
    if (record.head.magic == ESR_MAGIC) return (record.esr >> 6 & 1U) != 0;
    if (record.head.magic == 0 || record.head.size == 0) break;
    offset += record.head.size;
  }
  return std::nullopt;
}

#endif

}  // namespace vgpu
