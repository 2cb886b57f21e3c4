#include "runtime/device/driver_block.hpp"

#include <cuda.h>

#include "runtime/device/cuda_check.hpp"

namespace ringsmith {

namespace {

using AddressRange = CUresult (*)(CUdeviceptr*, std::size_t*, CUdeviceptr);

#ifdef RINGSMITH_VGPU
AddressRange address_range() { return cuMemGetAddressRange; }
#else
// Asked for at run time: a program that is linked with the driver's library does not even start
// where there is no driver, and could not say so.
AddressRange address_range() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const char* name = "cuMemGetAddressRange";
#if CUDART_VERSION >= 12050
  constexpr unsigned kSince = 3020;  // CUDA 3.2 gave the call its 64-bit types
  cuda_check(cudaGetDriverEntryPointByVersion(name, &found, kSince, cudaEnableDefault, &result));
#else
  cuda_check(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result));
#endif
  if (result != cudaDriverEntryPointSuccess || found == nullptr)
    throw CudaError("cuMemGetAddressRange: this driver does not have it; update the driver");
  return reinterpret_cast<AddressRange>(found);
}
#endif

}  // namespace

DriverBlock driver_block_of(const void* device_pointer) {
  static const AddressRange range = address_range();
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(device_pointer);
  if (range(&base, &bytes, address) != CUDA_SUCCESS)
    throw CudaError("cuMemGetAddressRange: the pointer is no device memory of this process");
  return {static_cast<std::uintptr_t>(base), bytes};
}

}  // namespace ringsmith
