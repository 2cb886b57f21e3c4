#include "kernels/vgpu/registers.hpp"

#include <cstdint>
#include <cstring>
#include <signal.h>

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "vgpu: say where this processor keeps its program counter and what a page fault was"
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

// Behind the registers stand records, each begun by a number and its size; the last is zero. One of
// them holds the syndrome of the fault (ESR_EL1), whose bit 6 says "not a read".
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
