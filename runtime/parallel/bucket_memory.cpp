#include "runtime/parallel/bucket_memory.hpp"

#include <utility>

#include "runtime/device/transfer.hpp"

namespace ringsmith {

// The whole way through the host, taken when somebody waits for it.
class StagedReduction : public comm::Work {
 public:
  StagedReduction(BucketMemory& memory, const comm::Buffer& data, comm::ReduceOp op)
      : memory_(memory), data_(data), op_(op) {}
  [[nodiscard]] bool is_completed() const override { return done_; }
  void wait() override {
    if (!std::exchange(done_, true)) memory_.through_host(data_, op_);
  }

 private:
  BucketMemory& memory_;
  comm::Buffer data_;
  comm::ReduceOp op_;
  bool done_ = false;
};

BucketMemory::BucketMemory(std::shared_ptr<comm::ProcessGroup> group, Device where, Bytes size)
    : group_(std::move(group)) {
  if (where.is_cpu() || where == group_->device()) {
    const std::shared_ptr<comm::CommMemory> memory = group_->allocate_on(where, size);
    storage_ = Storage::adopt(memory->data(), memory->size(), memory, where);
    return;
  }
  if (!group_->device().is_cpu())
    throw UsageError("gradients on " + where.str() + " cannot be reduced by a group on " +
                     group_->device().str() + ": make the group on the model's device");
  storage_ = Storage::allocate(size, where);
  staging_ = group_->allocate(size);
}

comm::Buffer BucketMemory::at(Bytes start, Elements count, DType dtype) const {
  return {storage_->data() + start.value, count, dtype};
}

comm::WorkPtr BucketMemory::all_reduce_async(Bytes start, Elements count, DType dtype,
                                             comm::ReduceOp op) {
  const comm::Buffer data = at(start, count, dtype);
  if (staging_ != nullptr) return std::make_shared<StagedReduction>(*this, data, op);
  return group_->all_reduce_async(data, data, op);
}

void BucketMemory::all_reduce(Bytes start, Elements count, DType dtype, comm::ReduceOp op) {
  const comm::Buffer data = at(start, count, dtype);
  staging_ != nullptr ? through_host(data, op) : group_->all_reduce(data, data, op);
}

void BucketMemory::through_host(const comm::Buffer& on_device, comm::ReduceOp op) {
  const Device device = storage_->device();
  std::byte* host = staging_->data() + (on_device.data() - storage_->data());
  transfer(host, Device::cpu(), on_device.data(), device, on_device.size());
  const comm::Buffer staged(host, on_device.count(), on_device.dtype());
  group_->all_reduce(staged, staged, op);
  transfer(on_device.data(), device, host, Device::cpu(), on_device.size());
}

}  // namespace ringsmith
