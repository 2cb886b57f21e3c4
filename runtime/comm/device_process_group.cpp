#include "runtime/comm/device_process_group.hpp"

#include <algorithm>

#include "kernels/cuda/launch.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/schedule/schedule.hpp"
#include "runtime/comm/subgroup.hpp"
#include "runtime/comm/types/bootstrap.hpp"
#include "runtime/device/capture.hpp"

namespace ringsmith::comm {

namespace {

Device device_of(const std::byte* data) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, data) != cudaSuccess) {
    (void)cudaGetLastError();
    return Device::cpu();
  }
  return attributes.type == cudaMemoryTypeDevice ? Device::cuda(attributes.device) : Device::cpu();
}

// True if the buffers are on device `ours`. Throws UsageError if one is on another device, or if
// only one is on the host.
bool on_device(const Transfer& transfer, Device ours) {
  if (transfer.call.count == 0) return false;  // without data, as in a barrier, the hosts suffice
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

class DeviceProcessGroup::DeviceWork : public Work {
 public:
  DeviceWork(WorkPtr item, std::shared_ptr<cuda_ipc::DeviceOperation> operation,
             DeviceBackend::HostWait host_wait, Device device)
      : item_(std::move(item)),
        operation_(std::move(operation)),
        host_wait_(std::move(host_wait)),
        device_(device) {}
  [[nodiscard]] bool is_completed() const override {
    return item_->is_completed() && operation_->done().has_happened();
  }
  void wait() override {
    item_->wait();
    Stream::current(device_).wait(operation_->done());
  }
  void host_wait() override {
    item_->wait();
    host_wait_(*operation_);
  }

 private:
  WorkPtr item_;
  std::shared_ptr<cuda_ipc::DeviceOperation> operation_;
  DeviceBackend::HostWait host_wait_;
  Device device_;
};

DeviceProcessGroup::DeviceProcessGroup(const std::shared_ptr<Bootstrap>& bootstrap,
                                       const GroupOptions& options, const cuda_ipc::Tuning& tuning)
    : CpuProcessGroup(bootstrap, options), device_(options.device) {
  require_device(device_);
  stream_ = Stream::create(device_, Stream::Priority::high);
  const bool network = options.transport == Transport::tcp || options.transport == Transport::rdma;
  const DeviceBackend::Group group{peers_, dispatcher_, device_, stream_};
  std::string refused;
  // Catalogues are read in shared memory, and the monitor's thread must not use a network.
  if (peers_.segments().all_local() && !network)
    backend_ = make_peer_backend(*bootstrap, group, options.engine, tuning, refused);
  const auto nodes = ranks_of_nodes(node_of(), size());
  for (const auto& members : nodes)
    if (nodes.size() > 1 && std::ranges::count(members, rank()) > 0)
      backend_ = make_nodes_backend(*bootstrap, make_member_bootstrap(*this, bootstrap, members),
                                    group, options, tuning, refused);
  if (!backend_) backend_ = make_staged_backend(group, options.engine, refused);
}

DeviceProcessGroup::~DeviceProcessGroup() { queue_.stop(); }

std::vector<std::string> DeviceProcessGroup::describe_transport() const {
  return backend_->describe();
}

// Sets on_device and, for device memory, adds an operation that starts after the work in the
// caller's current stream.
Transfer DeviceProcessGroup::prepared(const Transfer& call) const {
  Transfer transfer = call;
  transfer.call.on_device = on_device(transfer, device_);
  if (!transfer.call.on_device) return transfer;
  capture::refuse(
      "run a collective of several ranks, because the hosts agree on each call and number its "
      "messages: capture the step of a single rank, or the work between two collectives");
  transfer.operation = std::make_shared<cuda_ipc::DeviceOperation>(
      ringsmith::Event::record(Stream::current(device_)));
  return transfer;
}

void DeviceProcessGroup::run(const Transfer& call) {
  const Transfer transfer = prepared(call);
  CpuProcessGroup::run(transfer);
  if (transfer.operation) Stream::current(device_).wait(transfer.operation->done());
}

WorkPtr DeviceProcessGroup::submit(const Transfer& call) {
  const Transfer transfer = prepared(call);
  WorkPtr item = CpuProcessGroup::submit(transfer);
  if (!transfer.operation) return item;
  return std::make_shared<DeviceWork>(std::move(item), transfer.operation, backend_->host_wait(),
                                      device_);
}

void DeviceProcessGroup::execute(Transfer& transfer) {
  if (transfer.call.on_device)
    backend_->run(transfer);
  else
    CpuProcessGroup::execute(transfer);
}

void DeviceProcessGroup::abort(Site site) {
  backend_->abort(site);
  CpuProcessGroup::abort(site);
}

std::shared_ptr<CommMemory> DeviceProcessGroup::allocate_on(Device where, Bytes size) {
  return where == device_ ? backend_->allocate(size) : CpuProcessGroup::allocate_on(where, size);
}

std::shared_ptr<ProcessGroup> make_device_group(const std::shared_ptr<Bootstrap>& bootstrap,
                                                const GroupOptions& options) {
  return std::make_shared<DeviceProcessGroup>(bootstrap, options);
}

}  // namespace ringsmith::comm
