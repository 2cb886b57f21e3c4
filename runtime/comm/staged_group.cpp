#include "runtime/comm/staged_group.hpp"

#include <algorithm>

#include "kernels/cuda/launch.hpp"
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

}  // namespace

StagedGroup::StagedGroup(std::shared_ptr<Bootstrap> bootstrap, const GroupOptions& options)
    : GroupOnDevice(std::move(bootstrap), options) {
  require(options.engine == CudaEngine::automatic,
          "--engine " + std::string(name_of(options.engine)) +
              ": engines a and b serve devices of one host with --transport auto or shm; here the "
              "bytes travel through host memory: leave --engine out");
}

std::shared_ptr<CommMemory> StagedGroup::allocate_on(Device where, Bytes size) {
  if (where == device_) return std::make_shared<DeviceBlock>(device_, size);
  return HostGroup::allocate_on(where, size);
}

std::vector<std::string> StagedGroup::describe_transport() const {
  std::vector<std::string> facts = HostGroup::describe_transport();
  facts.push_back("memory of " + device_.str() +
                  " is copied through pinned host memory: letting the network device read it "
                  "(dma-buf, nvidia_peermem) is not implemented");
  return facts;
}

GroupOnDevice::HostWait StagedGroup::host_wait() const {
  return [](const cuda_ipc::Operation& operation) { operation.done().synchronize(); };
}

void StagedGroup::execute(Transfer& transfer, bool foreground) {
  if (!transfer.call.on_device) return HostGroup::execute(transfer, foreground);
  const DeviceGuard guard(device_);
  const Bytes in = transfer.input.size(), out = transfer.output.size();
  // In place one of the two may be longer: reduce_scatter's input, all_gather's output.
  const bool in_place = transfer.input.data() == transfer.output.data();
  PinnedBlock near_input(Bytes(in_place ? 0 : in.value));
  PinnedBlock near_output(in_place ? std::max(in, out) : out);

  Transfer staged = transfer;
  staged.input = {in_place ? near_output.data() : near_input.data(), transfer.input.count(),
                  transfer.input.dtype()};
  staged.output = {near_output.data(), transfer.output.count(), transfer.output.dtype()};
  stream_.wait(transfer.operation->ready());
  const auto fetch = [&](std::byte* to, const std::byte* from, std::size_t size) {
    if (size > 0)
      cuda_check(cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToHost, stream_.get()));
  };
  // The output, too: broadcast reads it, and reduce leaves that of most ranks as it is.
  if (in_place) {
    fetch(near_output.data(), transfer.output.data(), std::max(in, out).value);
  } else {
    fetch(near_output.data(), transfer.output.data(), out.value);
    fetch(near_input.data(), transfer.input.data(), in.value);
  }
  stream_.synchronize();
  HostGroup::execute(staged, foreground);
  transfer.sequence = staged.sequence;
  if (out.value > 0)
    cuda_check(cudaMemcpyAsync(transfer.output.data(), near_output.data(), out.value,
                               cudaMemcpyHostToDevice, stream_.get()));
  near_output.release_after(stream_);
  transfer.operation->launched(transfer.sequence, transfer.call.describe(), transfer.sequence,
                               stream_);
}

}  // namespace ringsmith::comm
