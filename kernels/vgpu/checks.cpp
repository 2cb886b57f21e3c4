// On processors that do not stop at a misaligned address or an integer division by zero, .cu files
// are compiled with the compiler's own checks of the two (kernels/cuda/cuda.cmake), and these are
// the functions they call, instead of those of libubsan: a kernel ends with a report. Host code
// goes on as it would without them.
#ifdef VGPU_CHECKS

#include <cstdint>
#include <string>

#include "kernels/vgpu/block.hpp"
#include "kernels/vgpu/fault.hpp"
#include "kernels/vgpu/report.hpp"

namespace vgpu {

namespace {

// The layouts are those of compiler-rt's lib/ubsan/ubsan_handlers.h; g++ follows them.
struct Place {
  const char* file;
  std::uint32_t line, column;
};

struct Mismatch {
  Place place;
  const void* type;
  std::uint8_t log_alignment;
  std::uint8_t kind;  // 0: a load, 1: a store, else neither yet: a reference, a member
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
                "misaligned address: no multiple of " + std::to_string(1U << found->log_alignment) +
                    "\n  " + (found->kind < 2 ? kAccess[found->kind] : "access to ") +
                    vgpu::describe_address(address));
}

extern "C" void __ubsan_handle_divrem_overflow(const vgpu::Division* found, std::uintptr_t,
                                               std::uintptr_t) {
  if (vgpu::active_runner == nullptr) return;
  vgpu::stop_at(vgpu::line_of(found->place), "an integer division by zero");
}

#endif
