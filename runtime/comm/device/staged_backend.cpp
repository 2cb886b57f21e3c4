// Runs calls on device memory that peers cannot access, through pinned memory of the host.
#include <algorithm>

#include "kernels/cuda/launch.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/device/backend.hpp"
#include "runtime/device/memory.hpp"
#include "runtime/device/transfer.hpp"

namespace ringsmith::comm {

namespace {

class DeviceBlock : public CommMemory {
 public:
  DeviceBlock(Device device, Bytes size)
      : device_(device), size_(size), data_(device_allocator::allocate(device, size)) {
    const DeviceGuard guard(device);
    cuda_check(cudaMemsetAsync(data_, 0, size.value, Stream::current(device).get()));
  }
  ~DeviceBlock() override { device_allocator::free(device_, data_); }
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;
  [[nodiscard]] std::byte* data() const override { return data_; }
  [[nodiscard]] Bytes size() const override { return size_; }
  [[nodiscard]] Device device() const override { return device_; }

 private:
  Device device_;
  Bytes size_;
  std::byte* data_;
};

class StagedBackend : public DeviceBackend {
 public:
  StagedBackend(const Group& group, CudaEngine wish, std::string refused)
      : group_(group), refused_(std::move(refused)) {
    require(wish == CudaEngine::automatic,
            "--engine " + std::string(name_of(wish)) +
                ": both engines serve devices of one host with --transport auto or shm, or of "
                "nodes with the same number of devices, at least two; here the bytes travel "
                "through host memory" +
                (refused_.empty() ? "" : " (" + refused_ + ")") + ": leave --engine out");
  }

  void run(Transfer& transfer) override {
    const DeviceGuard guard(group_.device);
    const Bytes in = transfer.input.size(), out = transfer.output.size();
    // If the call is in place, one buffer may be longer than the other, e.g. the input of
    // reduce_scatter or the output of all_gather.
    const bool in_place = transfer.input.data() == transfer.output.data();
    PinnedBlock near_input(Bytes(in_place ? 0 : in.value));
    PinnedBlock near_output(in_place ? std::max(in, out) : out);

    Transfer staged = transfer;
    staged.input = {in_place ? near_output.data() : near_input.data(), transfer.input.count(),
                    transfer.input.dtype(), transfer.input.site()};
    staged.output = {near_output.data(), transfer.output.count(), transfer.output.dtype(),
                     transfer.output.site()};
    Stream& stream = group_.stream;
    stream.wait(transfer.operation->ready());
    const auto fetch = [&](std::byte* to, const std::byte* from, std::size_t size) {
      if (size > 0)
        cuda_check(cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToHost, stream.get()));
    };
    // Fetches the output, too, because it is copied back even if the collective does not write it
    // on this rank.
    if (in_place) {
      fetch(near_output.data(), transfer.output.data(), std::max(in, out).value);
    } else {
      fetch(near_output.data(), transfer.output.data(), out.value);
      fetch(near_input.data(), transfer.input.data(), in.value);
    }
    stream.synchronize();
    group_.dispatcher.run(staged);
    if (out.value > 0)
      cuda_check(cudaMemcpyAsync(transfer.output.data(), near_output.data(), out.value,
                                 cudaMemcpyHostToDevice, stream.get()));
    near_output.release_after(stream);
    transfer.operation->launched(transfer.sequence, transfer.call.describe(), transfer.sequence,
                                 stream);
  }

  [[nodiscard]] std::shared_ptr<CommMemory> allocate(Bytes size) override {
    return std::make_shared<DeviceBlock>(group_.device, size);
  }
  [[nodiscard]] HostWait host_wait() const override {
    return [](const cuda_ipc::DeviceOperation& operation) { operation.done().synchronize(); };
  }
  [[nodiscard]] std::vector<std::string> describe() const override {
    std::vector<std::string> facts = group_.peers.segments().describe();
    if (!refused_.empty()) facts.push_back("transport cuda_ipc was refused: " + refused_);
    facts.push_back("memory of " + group_.device.str() +
                    " is copied through pinned host memory: letting the network device read it "
                    "(dma-buf, nvidia_peermem) is not implemented");
    return facts;
  }

 private:
  Group group_;
  std::string refused_;
};

}  // namespace

std::unique_ptr<DeviceBackend> make_staged_backend(const DeviceBackend::Group& group,
                                                   CudaEngine wish, const std::string& refused) {
  return std::make_unique<StagedBackend>(group, wish, refused);
}

}  // namespace ringsmith::comm
