// One element, wherever it lies: communication buffers are whatever memory the caller has, and need
// not even be aligned to their elements. A device faults on a misaligned load, so these go by
// bytes.
#pragma once

#include <cstring>

#include "kernels/cuda/pack.cuh"

namespace ringsmith::kernels::cuda {

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
