// The mathematical functions of kernels: the host's results, moved by up to VGPU_LIBM_ULPS.
//
// NVIDIA documents errors of 1 to 4 units in the last place for its functions, and they differ from
// the host's. A test that compares a kernel with code that calls the host's functions must allow
// for this difference. Without VGPU_LIBM_ULPS both sides call the same functions, and the
// difference never shows.
#include <bit>
#include <cstdint>
#include <limits>
#include <math.h>
#include <type_traits>

#include "kernels/vgpu/api/language.hpp"
#include "kernels/vgpu/api/libm_functions.hpp"
#include "kernels/vgpu/api/thread.hpp"
#include "kernels/vgpu/settings.hpp"

namespace vgpu {

namespace {

// The distance depends only on the seed and the arguments, because a function of a device returns
// the same result for the same arguments. Results of 0, 1 and -1, which all libraries compute
// exactly or saturate to, infinities and NaN are not moved, and no result moves past 1 or -1.
template <class T>
T moved(T result, T x, T y = 0) {
  if (current_thread == nullptr) return result;  // host code
  static const std::uint64_t most = Settings::get().libm_ulps;
  const T size = std::abs(result);
  if (most == 0 || size == 0 || size == 1 || !std::isfinite(result)) return result;
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  const std::uint64_t arguments =
      std::uint64_t{std::bit_cast<Bits>(x)} ^ std::rotl(std::uint64_t{std::bit_cast<Bits>(y)}, 32);
  const auto ulps = static_cast<Bits>(Random(arguments ^ 0x6c69'626d).below(2 * most + 1));
  const auto away = static_cast<Bits>(std::bit_cast<Bits>(size) + ulps - static_cast<Bits>(most));
  T out = std::bit_cast<T>(away);
  if (!(out <= std::numeric_limits<T>::max())) return result;  // past the least or largest number
  if ((size < 1) != (out < 1)) out = 1;
  return std::copysign(out, result);
}

}  // namespace

float moved_result(float result, float x) { return moved(result, x); }
double moved_result(double result, double x) { return moved(result, x); }

}  // namespace vgpu

#define VGPU_DEFINE(NAME)                                                \
  float vgpu_##NAME##f(float x) { return vgpu::moved(::NAME##f(x), x); } \
  double vgpu_##NAME(double x) { return vgpu::moved(::NAME(x), x); }
#define VGPU_DEFINE_BINARY(NAME)                                                        \
  float vgpu_##NAME##f(float x, float y) { return vgpu::moved(::NAME##f(x, y), x, y); } \
  double vgpu_##NAME(double x, double y) { return vgpu::moved(::NAME(x, y), x, y); }
extern "C" {
VGPU_LIBM_UNARY(VGPU_DEFINE)
VGPU_LIBM_BINARY(VGPU_DEFINE_BINARY)
}
#undef VGPU_DEFINE
#undef VGPU_DEFINE_BINARY
