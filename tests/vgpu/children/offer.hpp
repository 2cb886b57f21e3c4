// Device memory that one process offers to another: its handle, and its offset in the block.
#pragma once

#include <cuda.h>
#include <string>

#include "kernels/cuda/launch.hpp"

namespace ringsmith::testing {

inline void expect(bool condition, const std::string& what) {
  if (!condition) throw Error("expected: " + what);
}

struct Offer {
  cudaIpcMemHandle_t handle;
  std::size_t offset;
};

template <class T>
Offer offer(T* pointer) {
  Offer o{};
  cuda_check(cudaIpcGetMemHandle(&o.handle, pointer));
  CUdeviceptr base = 0;
  std::size_t size = 0;
  if (cuMemGetAddressRange(&base, &size, reinterpret_cast<CUdeviceptr>(pointer)) != CUDA_SUCCESS)
    throw Error("cuMemGetAddressRange failed");
  o.offset = reinterpret_cast<CUdeviceptr>(pointer) - base;
  return o;
}

inline std::byte* open_handle(const Offer& o) {
  void* base = nullptr;
  cuda_check(cudaIpcOpenMemHandle(&base, o.handle, cudaIpcMemLazyEnablePeerAccess));
  return static_cast<std::byte*>(base);
}

}  // namespace ringsmith::testing
