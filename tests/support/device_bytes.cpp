#include "tests/support/device_bytes.hpp"

#include "kernels/cuda/launch.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith::test {

std::shared_ptr<std::byte> device_bytes(Device device, std::size_t bytes) {
  const DeviceGuard guard(device);
  std::byte* data = nullptr;
  cuda_check(cudaMalloc(&data, bytes == 0 ? 1 : bytes));
  return {data, [](std::byte* p) { (void)cudaFree(p); }};
}

void copy_on_device(void* to, const void* from, std::size_t bytes, Device device) {
  if (device.is_cpu() || to == from || bytes == 0) return;
  const DeviceGuard guard(device);
  const Stream stream = Stream::current(device);
  cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.get()));
  stream.synchronize();
}

}  // namespace ringsmith::test
