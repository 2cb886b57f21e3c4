// Packs of elements, usually 16 bytes, the widest load and store of a thread on most devices.
//
// A warp that loads 16 bytes per lane needs a quarter of the instructions of loads of 4 bytes.
// Packs need aligned pointers, but views and bucket offsets may be misaligned. Callers therefore
// check with aligned() and fall back to single elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cuda_runtime.h>

#include "kernels/half.hpp"

namespace ringsmith::kernels::cuda {

template <class T, int N>
struct alignas(N * sizeof(T)) Pack {
  T at[N];
};

template <class T>
constexpr int kPack = 16 / static_cast<int>(sizeof(T));

template <int N, class T>
__device__ Pack<T, N> load_pack(const T* p, std::int64_t i) {
  return reinterpret_cast<const Pack<T, N>*>(p)[i];
}
template <int N, class T>
__device__ void store_pack(T* p, std::int64_t i, const Pack<T, N>& pack) {
  reinterpret_cast<Pack<T, N>*>(p)[i] = pack;
}

// f16 and bf16 are widened to float, and floats rounded to f16 or bf16. Other types are unchanged.
template <class T>
__device__ Wide<T> widened(T x) {
  return static_cast<Wide<T>>(x);
}
template <class T, int N>
__device__ Pack<Wide<T>, N> widened(const Pack<T, N>& pack) {
  Pack<Wide<T>, N> wide;
#pragma unroll
  for (int k = 0; k < N; ++k) wide.at[k] = widened(pack.at[k]);
  return wide;
}

// Two floats as two 16-bit elements, the first in the low half: one instruction from sm_80 on.
template <class T>
__device__ std::uint32_t narrowed_pair(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t both;
  if constexpr (std::is_same_v<T, bf16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  return both;
#else
  return T(first).bits | std::uint32_t{T(second).bits} << 16;
#endif
}
template <class T, int N>
__device__ Pack<T, N> narrowed(const Pack<Wide<T>, N>& wide) {
  Pack<T, N> pack;
  if constexpr (kIsHalf<T> && N % 2 == 0) {
    std::uint32_t words[N / 2];  // not elements, which the compiler would join again
#pragma unroll
    for (int k = 0; k < N / 2; ++k) words[k] = narrowed_pair<T>(wide.at[2 * k], wide.at[2 * k + 1]);
    memcpy(&pack, words, sizeof pack);
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) pack.at[k] = static_cast<T>(wide.at[k]);
  }
  return pack;
}

// True if packs of n elements may start at p, or p is null.
template <class T>
constexpr bool aligned_for(const T* p, std::size_t n) {
  return reinterpret_cast<std::uintptr_t>(p) % (n * sizeof(T)) == 0;
}

// True if packs of kPack<first> elements may start at each pointer.
template <class T, class... More>
bool aligned(const T* p, const More*... more) {
  constexpr std::size_t n = kPack<T>;
  return aligned_for(p, n) && (aligned_for(more, n) && ...);
}

// Communication buffers are the caller's memory and may not even be aligned to their elements. A
// device faults on a misaligned access, so such elements are copied by bytes. The bytes are
// volatile, because nvcc 13.0 otherwise joins the two paths again: into one access of the element's
// size, aligned or not, or into bytes for every element.
template <class T>
__device__ T load_element(const std::byte* p) {
  if (reinterpret_cast<std::uintptr_t>(p) % sizeof(T) == 0) return *reinterpret_cast<const T*>(p);
  unsigned char bytes[sizeof(T)];
#pragma unroll
  for (std::size_t i = 0; i < sizeof(T); ++i)
    bytes[i] = reinterpret_cast<const volatile unsigned char*>(p)[i];
  T value;
  memcpy(&value, bytes, sizeof(T));
  return value;
}

template <class T>
__device__ void store_element(std::byte* p, T value) {
  if (reinterpret_cast<std::uintptr_t>(p) % sizeof(T) == 0) {
    *reinterpret_cast<T*>(p) = value;
    return;
  }
  unsigned char bytes[sizeof(T)];
  memcpy(bytes, &value, sizeof(T));
#pragma unroll
  for (std::size_t i = 0; i < sizeof(T); ++i)
    reinterpret_cast<volatile unsigned char*>(p)[i] = bytes[i];
}

// Packs of N elements or, with N = 1, single elements at any address.
template <class T, int N>
__device__ Pack<T, N> load_pack_at(const std::byte* p) {
  if constexpr (N == 1)
    return {{load_element<T>(p)}};
  else
    return *reinterpret_cast<const Pack<T, N>*>(p);
}
template <class T, int N>
__device__ void store_pack_at(std::byte* p, const Pack<T, N>& pack) {
  if constexpr (N == 1)
    store_element(p, pack.at[0]);
  else
    *reinterpret_cast<Pack<T, N>*>(p) = pack;
}

}  // namespace ringsmith::kernels::cuda
