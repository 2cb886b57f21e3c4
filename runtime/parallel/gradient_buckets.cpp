#include "runtime/parallel/gradient_buckets.hpp"

#include <algorithm>
#include <utility>

#include "runtime/autograd/tensor_grad.hpp"
#include "runtime/device/transfer.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith {

// A reduction through the host, done entirely in wait().
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

namespace {

Device device_of(const std::vector<Tensor>& parameters) {
  require(!parameters.empty(),
          "DistributedDataParallel has nothing to do: no parameter requires a gradient");
  for (const Tensor& p : parameters)
    (void)raw::common_device("DistributedDataParallel", parameters[0], p);
  return parameters[0].device();
}

std::vector<BucketItem> items_of(const std::vector<Tensor>& parameters) {
  std::vector<BucketItem> items;
  items.reserve(parameters.size());
  for (const Tensor& p : parameters)
    items.push_back({Elements(static_cast<std::size_t>(p.numel())), p.dtype()});
  return items;
}

}  // namespace

GradientBuckets::GradientBuckets(std::vector<std::string> names, std::vector<Tensor> parameters,
                                 std::shared_ptr<comm::ProcessGroup> group, comm::ReduceOp op)
    : names_(std::move(names)),
      parameters_(std::move(parameters)),
      group_(std::move(group)),
      op_(op),
      divisor_(group_->size()),
      items_(items_of(parameters_)),
      device_(device_of(parameters_)),
      memory_(group_, device_, arena_size(items_)),
      views_(parameters_.size()) {}

GradientBuckets::~GradientBuckets() {
  for (const Tensor& p : parameters_)
    if (p.requires_grad()) set_grad_target(p, {});
}

// Moves gradients through copies, because old and new slots share one arena.
void GradientBuckets::install(BucketPlan plan) {
  std::vector<Tensor> held(parameters_.size());
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const Tensor grad = parameters_[p].grad();
    if (!grad.defined()) continue;
    held[p] = grad.storage() == memory_.storage() ? grad.clone() : grad;
  }
  plan_ = std::move(plan);
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const BucketPlan::Place place = plan_.place[p];
    const BucketLayout& bucket = plan_.buckets[static_cast<std::size_t>(place.bucket)];
    const Elements offset = Elements(bucket.start.value / size_of(bucket.dtype)) +
                            bucket.slots[static_cast<std::size_t>(place.slot)].offset;
    const Shape& sizes = parameters_[p].sizes();
    views_[p] = Tensor::from_storage(memory_.storage(), sizes, contiguous_strides(sizes),
                                     static_cast<std::int64_t>(offset.value), bucket.dtype);
    if (held[p].defined()) {
      views_[p].copy_(held[p]);
      parameters_[p].set_grad(views_[p]);
    }
    set_grad_target(parameters_[p], views_[p]);
  }
}

// ---- gradients ----

void GradientBuckets::adopt(int parameter) {
  const Tensor& owner = parameters_[static_cast<std::size_t>(parameter)];
  const Tensor grad = owner.grad();
  if (data_of(grad) == data_of(view(parameter)) && grad.is_contiguous()) return;
  view(parameter).copy_(grad);
  owner.set_grad(view(parameter));
}

void GradientBuckets::arrived(int parameter) {
  adopt(parameter);
  if (!device_.is_cuda()) return;
  const Stream current = Stream::current(device_);
  if (std::ranges::find(streams_, current) == streams_.end()) streams_.push_back(current);
}

void GradientBuckets::wait_for_gradients() const {
  for (const Stream& producer : streams_) Stream::current(device_).wait(producer);
}

// ---- buckets ----

comm::WorkPtr GradientBuckets::reduce_async(std::size_t bucket) {
  const BucketLayout& b = plan_.buckets[bucket];
  return memory_.all_reduce_async(b.start, b.count, b.dtype, prepare(bucket));
}

void GradientBuckets::reduce(std::size_t bucket) {
  const BucketLayout& b = plan_.buckets[bucket];
  memory_.all_reduce(b.start, b.count, b.dtype, prepare(bucket));
}

// If the average is to be divided by a number other than the group's size, scales this rank's
// contribution and returns sum.
comm::ReduceOp GradientBuckets::prepare(std::size_t bucket) const {
  if (op_ != comm::ReduceOp::avg || divisor_ == group_->size()) return op_;
  raw::scalar_into(raw::Scalar::mul, buffer(bucket), 1.0 / divisor_, "average");
  return comm::ReduceOp::sum;
}

Tensor GradientBuckets::buffer(std::size_t bucket) const {
  const BucketLayout& b = plan_.buckets[bucket];
  return Tensor::from_storage(memory_.storage(), {static_cast<std::int64_t>(b.count.value)}, {1},
                              static_cast<std::int64_t>(b.start.value / size_of(b.dtype)), b.dtype);
}

GradBucket GradientBuckets::for_hook(std::size_t bucket) const {
  GradBucket out{static_cast<int>(bucket), bucket + 1 == count(), buffer(bucket), {}, {}, 0};
  for (const BucketSlot& slot : plan_.buckets[bucket].slots) {
    out.gradients.push_back(view(slot.parameter));
    out.parameters.push_back(parameters_[static_cast<std::size_t>(slot.parameter)]);
  }
  out.loss_scale = loss_scale(out.parameters.front());
  return out;
}

}  // namespace ringsmith
