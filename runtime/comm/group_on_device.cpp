#include "runtime/comm/group_on_device.hpp"

#include "runtime/comm/device_arguments.hpp"

namespace ringsmith::comm {

// In flight on the device.
class GroupOnDevice::DeviceWork : public Work {
 public:
  DeviceWork(WorkPtr item, std::shared_ptr<cuda_ipc::Operation> operation, HostWait host_wait,
             Device device)
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
  std::shared_ptr<cuda_ipc::Operation> operation_;
  HostWait host_wait_;
  Device device_;
};

GroupOnDevice::GroupOnDevice(std::shared_ptr<Bootstrap> bootstrap, const GroupOptions& options)
    : HostGroup(std::move(bootstrap), options), device_(options.device) {
  require_device(device_);
  stream_ = Stream::create(device_);
}

void GroupOnDevice::run(const Transfer& call) {
  Transfer transfer = call;
  prepare_for_device(transfer, device_);
  HostGroup::run(transfer);
  if (transfer.operation) Stream::current(device_).wait(transfer.operation->done());
}

WorkPtr GroupOnDevice::push(const Transfer& call) {
  Transfer transfer = call;
  prepare_for_device(transfer, device_);
  WorkPtr item = HostGroup::push(transfer);
  if (!transfer.operation) return item;
  return std::make_shared<DeviceWork>(std::move(item), transfer.operation, host_wait(), device_);
}

}  // namespace ringsmith::comm
