#include "kernels/vgpu/api/foreign.hpp"

#include <memory>
#include <string>

#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/settings.hpp"

using vgpu::fail;

bool vgpu::prefer_default_stream() { return Settings::prefer("VGPU_LEGACY_STREAM", 1); }

cudaError_t cudaSetDeviceFlags(unsigned flags) {
  const vgpu::Quiet quiet;
  constexpr unsigned kKnown = cudaDeviceScheduleSpin | cudaDeviceScheduleYield |
                              cudaDeviceScheduleBlockingSync | cudaDeviceMapHost;
  if ((flags & ~kKnown) == 0) return cudaSuccess;
  return fail(cudaErrorInvalidValue,
              "cudaSetDeviceFlags: unknown flags " + std::to_string(flags & ~kKnown));
}

cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device,
                           std::size_t bytes) {
  // CUDA waits for all earlier work of both devices.
  for (const int device : {to_device, from_device})
    if (device >= 0 && device < vgpu::Device::count()) vgpu::Device::get(device).synchronize();
  const cudaError_t error = cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, nullptr);
  return error == cudaSuccess ? cudaStreamSynchronize(nullptr) : error;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data,
                                  unsigned flags) {
  if (flags != 0 || function == nullptr)
    return fail(cudaErrorInvalidValue, flags != 0 ? "cudaStreamAddCallback: flags must be 0"
                                                  : "cudaStreamAddCallback: the function is null");
  struct Bound {
    cudaStreamCallback_t function;
    cudaStream_t stream;
    void* data;
  };
  auto bound = std::make_unique<Bound>(Bound{function, stream, data});
  const cudaError_t error = cudaLaunchHostFunc(
      stream,
      [](void* p) {
        const std::unique_ptr<Bound> mine(static_cast<Bound*>(p));
        mine->function(mine->stream, cudaSuccess, mine->data);
      },
      bound.get());
  if (error == cudaSuccess) (void)bound.release();  // the stream owns it
  return error;
}
