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
// device faults on a misaligned load, so such elements are copied by bytes.
template <class T>
__device__ T load_element(const std::byte* p) {
  if (reinterpret_cast<std::uintptr_t>(p) % sizeof(T) == 0) return *reinterpret_cast<const T*>(p);
  T value;
  memcpy(&value, p, sizeof(T));
  return value;
}

template <class T>
__device__ void store_element(std::byte* p, T value) {
  if (reinterpret_cast<std::uintptr_t>(p) % sizeof(T) == 0)
    *reinterpret_cast<T*>(p) = value;
  else
    memcpy(p, &value, sizeof(T));
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
