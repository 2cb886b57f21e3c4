// The atomic functions of CUDA C. As on the device, they are relaxed; only <cuda/atomic> and fences
// order other accesses.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/vgpu/api/thread.hpp"

namespace vgpu {

template <class T>
std::uint64_t as_word(T value) {
  if constexpr (sizeof(T) == 8)
    return std::bit_cast<std::uint64_t>(value);
  else if constexpr (sizeof(T) == 4)
    return std::bit_cast<std::uint32_t>(value);
  else if constexpr (sizeof(T) == 2)
    return std::bit_cast<std::uint16_t>(value);
  else
    return std::bit_cast<std::uint8_t>(value);
}

// The comparison is bitwise, which matters for -0 and 0 (equal, but with different bits) and for
// NaN (never equal, even with equal bits).
template <class T, class Next>
T update(T* p, const Source& where, Next next) {
  T old;
  __atomic_load(p, &old, __ATOMIC_RELAXED);
  for (;;) {
    T desired = next(old);
    if (__atomic_compare_exchange(p, &old, &desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      break;
  }
  loaded(p, as_word(old), where);
  return old;
}

}  // namespace vgpu

// Most functions take int, unsigned and unsigned long long. Add and Exch also take float, and Add
// double. Sub lacks unsigned long long, and Inc and Dec take only unsigned.
#define VGPU_ATOMIC(NAME, T, NEXT)                                                   \
  inline T NAME(T* p, T v, vgpu::Source where = vgpu::Source::current()) {           \
    return vgpu::update(p, where, [v](T old) -> T { return static_cast<T>(NEXT); }); \
  }
#define VGPU_ATOMIC_INTEGERS(NAME, NEXT) \
  VGPU_ATOMIC(NAME, int, NEXT)           \
  VGPU_ATOMIC(NAME, unsigned, NEXT)      \
  VGPU_ATOMIC(NAME, unsigned long long, NEXT)
VGPU_ATOMIC_INTEGERS(atomicAdd, old + v)
VGPU_ATOMIC(atomicAdd, float, old + v)
VGPU_ATOMIC(atomicAdd, double, old + v)
VGPU_ATOMIC(atomicSub, int, old - v)
VGPU_ATOMIC(atomicSub, unsigned, old - v)
VGPU_ATOMIC_INTEGERS(atomicExch, ((void)old, v))
VGPU_ATOMIC(atomicExch, float, ((void)old, v))
VGPU_ATOMIC_INTEGERS(atomicMin, v < old ? v : old)
VGPU_ATOMIC_INTEGERS(atomicMax, v > old ? v : old)
VGPU_ATOMIC_INTEGERS(atomicAnd, old& v)
VGPU_ATOMIC_INTEGERS(atomicOr, old | v)
VGPU_ATOMIC_INTEGERS(atomicXor, old ^ v)
VGPU_ATOMIC(atomicInc, unsigned, old >= v ? 0 : old + 1)
VGPU_ATOMIC(atomicDec, unsigned, (old == 0 || old > v) ? v : old - 1)
#undef VGPU_ATOMIC
#undef VGPU_ATOMIC_INTEGERS

#define VGPU_ATOMIC_CAS(T)                                                                        \
  inline T atomicCAS(T* p, T expected, T desired, vgpu::Source where = vgpu::Source::current()) { \
    __atomic_compare_exchange(p, &expected, &desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
    vgpu::loaded(p, vgpu::as_word(expected), where);                                              \
    return expected;                                                                              \
  }
VGPU_ATOMIC_CAS(int)
VGPU_ATOMIC_CAS(unsigned)
VGPU_ATOMIC_CAS(unsigned long long)
#undef VGPU_ATOMIC_CAS
