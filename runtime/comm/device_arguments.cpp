#include "runtime/comm/device_arguments.hpp"

#include "kernels/cuda/launch.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::comm {

namespace {

// The device whose memory this is, or the CPU.
Device device_of(const std::byte* data) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, data) != cudaSuccess) {
    (void)cudaGetLastError();
    return Device::cpu();
  }
  return attributes.type == cudaMemoryTypeDevice ? Device::cuda(attributes.device) : Device::cpu();
}

bool on_device(const Transfer& transfer, Device ours) {
  if (transfer.call.count == 0) return false;  // also barrier: nothing moves, the hosts agree
  bool any_host = false, any_device = false;
  for (const ConstBuffer& buffer : {transfer.input, ConstBuffer(transfer.output)}) {
    if (buffer.size().value == 0) continue;
    const Device device = device_of(buffer.data());
    if (device != ours && !device.is_cpu())
      throw UsageError(std::string(transfer.call.name()) + ": a buffer is on " + device.str() +
                       ", but this rank's group is on " + ours.str());
    (device.is_cpu() ? any_host : any_device) = true;
  }
  if (any_host && any_device)
    throw UsageError(std::string(transfer.call.name()) +
                     ": one buffer is in host memory and one on " + ours.str() +
                     "; use one kind in a call");
  return any_device;
}

}  // namespace

void prepare_for_device(Transfer& transfer, Device device) {
  transfer.call.on_device = on_device(transfer, device);
  if (transfer.call.on_device)
    transfer.operation =
        std::make_shared<cuda_ipc::Operation>(Event::record(Stream::current(device)));
}

}  // namespace ringsmith::comm
