// Sixteen bytes at a time: the widest load and store a thread has.
//
// A GPU moves memory in sectors of 32 bytes; a warp that loads 16 bytes in each lane asks for 512
// at once and needs a quarter of the instructions. Packs need aligned pointers: callers look with
// aligned() and fall back to single elements, for whatever a view or a bucket's offset may bring.
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

// Elements of T in a pack of 16 bytes.
template <class T>
constexpr int kPack = 16 / static_cast<int>(sizeof(T));

// Pack number i of p.
template <int N, class T>
__device__ Pack<T, N> load_pack(const T* p, std::int64_t i) {
  return reinterpret_cast<const Pack<T, N>*>(p)[i];
}
template <int N, class T>
__device__ void store_pack(T* p, std::int64_t i, const Pack<T, N>& pack) {
  reinterpret_cast<Pack<T, N>*>(p)[i] = pack;
}

// Whether packs of n elements may begin at p; true for a null pointer.
template <class T>
constexpr bool aligned_for(const T* p, std::size_t n) {
  return reinterpret_cast<std::uintptr_t>(p) % (n * sizeof(T)) == 0;
}

// Whether packs of kPack<first> elements may begin at all of them.
template <class T, class... More>
bool aligned(const T* p, const More*... more) {
  constexpr std::size_t n = kPack<T>;
  return aligned_for(p, n) && (aligned_for(more, n) && ...);
}

// One element, wherever it lies: communication buffers are whatever memory the caller has, and need
// not even be aligned to their elements. A device faults on a misaligned load: these go by bytes.
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

// Packs of N, or with N = 1 single elements wherever they lie.
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
