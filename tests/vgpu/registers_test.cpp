// Tests how saved registers are read. User-mode emulation of arm64 omits the record that
// distinguishes reads from writes, so no test of a whole program covers this there.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <signal.h>

#include "kernels/vgpu/fault.hpp"
#include "tests/support/catch.hpp"

using vgpu::was_write;

#if defined(__x86_64__)
TEST_CASE("registers: a page fault's error code tells reads from writes") {
  const auto at = std::make_unique<ucontext_t>();
  at->uc_mcontext.gregs[REG_ERR] = 4;  // a read by a program from an unmapped page
  CHECK(was_write(*at) == std::optional(false));
  at->uc_mcontext.gregs[REG_ERR] = 6;
  CHECK(was_write(*at) == std::optional(true));
}
#elif defined(__aarch64__)
TEST_CASE("registers: a page fault's syndrome tells reads from writes, if it is there") {
  const auto at = std::make_unique<ucontext_t>();
  std::size_t used = 0;
  const auto append = [&](std::uint32_t magic, std::uint32_t bytes, std::uint64_t first) {
    auto* const record = at->uc_mcontext.__reserved + used;
    std::memcpy(record, &magic, sizeof magic);
    std::memcpy(record + 4, &bytes, sizeof bytes);
    std::memcpy(record + 8, &first, sizeof first);
    used += bytes;
  };
  constexpr std::uint64_t kDataAbort = 0x92000004, kNotRead = 1U << 6;
  CHECK(was_write(*at) == std::nullopt);
  append(FPSIMD_MAGIC, sizeof(fpsimd_context), kNotRead);
  CHECK(was_write(*at) == std::nullopt);
  append(ESR_MAGIC, sizeof(esr_context), kDataAbort);
  CHECK(was_write(*at) == std::optional(false));
  used -= sizeof(esr_context);
  append(ESR_MAGIC, sizeof(esr_context), kDataAbort | kNotRead);
  CHECK(was_write(*at) == std::optional(true));
}
#endif
